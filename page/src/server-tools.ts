/** Tools that the server runs (`--allow-tools`): which there are, which a conversation uses, and which run without a question. */

import { signal } from "@preact/signals";

import { ask } from "./api";
import { t } from "./language";
import { remembered } from "./remembered";
import type { Options } from "./types";

export interface ServerTool {
  tool: string; // its name for the model
  display_name: string;
  definition: object;
}

const DECISIONS = "pumice.tools";
export const MOST_TURNS = 10; // answers with calls that run by themselves, one after the other

export const serverTools = signal<readonly ServerTool[]>([]);

const decisions = signal<Readonly<Record<string, boolean>>>(remembered(DECISIONS));

export async function findTools(): Promise<void> {
  serverTools.value = await (await ask("tools")).json();
}

/** Whether a tool runs without a question, or never; undefined for one that is asked for. Tools may be called `constructor`. */
export function decisionOf(name: string): boolean | undefined {
  return Object.hasOwn(decisions.value, name) ? decisions.value[name] : undefined;
}

export function decide(name: string, runs: boolean | undefined): void {
  const { [name]: _, ...others } = decisions.value;
  decisions.value = runs === undefined ? others : { ...others, [name]: runs };
  localStorage.setItem(DECISIONS, JSON.stringify(decisions.value));
}

/** The tools that a conversation uses. */
export function chosenTools({ serverTools: names }: Options): ServerTool[] {
  return serverTools.value.filter(({ tool }) => names?.includes(tool));
}

/** The result of a call as the model reads it. */
export async function runTool(name: string, text: string, signal: AbortSignal): Promise<string> {
  let params: unknown;
  try {
    params = JSON.parse(text || "{}");
  } catch {
    return "Error: the arguments are not JSON";
  }
  try {
    const response = await ask("tools", { method: "POST", body: JSON.stringify({ tool: name, params }), signal });
    const { plain_text_response: result, error } = await response.json();
    return error === undefined || error === null ? result : `Error: ${error}`;
  } catch (error) {
    if ((error as Error).name === "AbortError") return "Error: the user stopped this call";
    return `Error: ${(error as Error).message}`;
  }
}

export const REFUSED = "Error: the user refused this call";

/** What a decision is called. */
export const decided = (name: string): string => ({ true: t("always"), false: t("never"), undefined: t("ask") })[String(decisionOf(name))]!;
