/** Answers: asked for, shown as they come, kept, stopped. */

import { signal } from "@preact/signals";

import { ApiError, chat, type Delta } from "./api";
import { contentOf } from "./attachments";
import { focusMessage } from "./focus";
import { t } from "./language";
import { chosenTools } from "./server-tools";
import * as state from "./state";
import { branch } from "./tree";
import type { Attachment, Message, Options, ToolCall } from "./types";

const KEEP_EVERY = 1000; // milliseconds between two times that an unfinished answer is kept

/** Answers that this tab writes or is about to ask for, by conversation, and how each is stopped. */
export const running = signal<ReadonlyMap<string, AbortController>>(new Map());

const WRITING = "pumice.writing";
const writing = new Set<string>(); // ids of messages
const written = new Set<string>();
const askedModels = new Map<string, string>(); // by the id of the answer
const stops = new BroadcastChannel("pumice.stop");
stops.onmessage = ({ data }) => running.value.get(data as string)?.abort();
addEventListener("pagehide", () => {
  if (writing.size) sessionStorage.setItem(WRITING, JSON.stringify([...writing]));
});

/** Say something, and get an answer. */
export async function send(text: string, attachments: readonly Attachment[] = []): Promise<void> {
  const [{ id, leaf }, kept] = state.ensureConversation(titleOf(text || attachments[0]!.name));
  await say(text, attachments, { conversation: id, parent: leaf }, kept);
}

/** Say something else instead of what `message` says, with some of its files: a new branch. */
export async function edit(message: Message, text: string, attachments: readonly Attachment[]): Promise<void> {
  await say(text, attachments, message);
}

/** What cannot be kept goes back to where messages are written. */
async function say(
  text: string,
  attachments: readonly Attachment[],
  { conversation, parent }: Pick<Message, "conversation" | "parent">,
  kept?: Promise<void>,
): Promise<void> {
  let isKept = false;
  await reserved(conversation, async (signal) => {
    await kept;
    await add(conversation, { parent, role: "user", content: text, ...(attachments.length && { attachments: [...attachments] }) });
    isKept = true;
    await answer(signal, conversation);
  });
  if (isKept) return;
  state.draft.value = [text, state.draft.value].filter(Boolean).join("\n");
  if (!state.attached.value.length) state.attached.value = attachments;
}

/** Do what ends with an answer in a conversation, unless this window does so already: two messages would have one parent. */
async function reserved(id: string, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  if (running.value.has(id)) return;
  focusMessage(); // the button that was pressed goes with its message
  const controller = new AbortController();
  running.value = new Map(running.value).set(id, controller);
  await state.attempt(() => work(controller.signal));
  running.value = new Map([...running.value].filter(([key]) => key !== id));
}

/** Another answer to the same, of another model if one is named: a new branch. */
export async function retry(message: Message, model?: string): Promise<void> {
  await reserved(message.conversation, (signal) => answer(signal, message.conversation, message.parent, undefined, model));
}

/** Whether the model that this window asked for an answer is not loaded yet. */
export function awaitsLoad(message: Message): boolean {
  const status = state.models.value.find(({ id }) => id === askedModels.get(message.id))?.status;
  return !!status && status !== "loaded";
}

/** Whether this window wrote an answer. */
export const isFresh = (message: Message): boolean => written.has(message.id);

/** Go on with an answer that was cut short. */
export async function goOn(message: Message): Promise<void> {
  await reserved(message.conversation, (signal) => answer(signal, message.conversation, message.parent, message));
}

/** What the tools answered, in the order of the calls. */
export async function giveResults(message: Message, results: readonly string[]): Promise<void> {
  await reserved(message.conversation, async (signal) => {
    let parent = message.id;
    for (const [index, call] of message.toolCalls!.entries()) {
      const result = { parent, role: "tool" as const, content: results[index] ?? "", toolCallId: call.id };
      parent = await keep(message.conversation, result);
    }
    await state.moveTo(message.conversation, parent); // only now: without all of them the calls can be answered again
    await answer(signal, message.conversation);
  });
}

/** Stop the answer of a conversation, in whichever window it is written. */
export function stop(conversation: string): void {
  const own = running.value.get(conversation);
  if (own) own.abort();
  else stops.postMessage(conversation);
}

/** Go on with the answer in which this window was reloaded. */
export async function resume(): Promise<void> {
  const ids: string[] = JSON.parse(sessionStorage.getItem(WRITING) ?? "[]");
  sessionStorage.removeItem(WRITING);
  const message = state.thread.value.at(-1);
  if (message && ids.includes(message.id) && !message.finish) await goOn(message);
}

type New = Omit<Message, "id" | "conversation" | "created">;

async function add(conversation: string, message: New): Promise<void> {
  await state.moveTo(conversation, await keep(conversation, message));
}

async function keep(conversation: string, message: New): Promise<string> {
  const made = { id: state.newId(), conversation, created: Date.now(), ...message };
  try {
    await state.keepMessage(made);
  } catch (error) {
    state.forget(made);
    throw error;
  }
  return made.id;
}

/** Ask for an answer to the message `parent`, or to the end of the conversation, and write it down. Another one may be open by now. */
async function answer(signal: AbortSignal, id: string, parent?: string | null, begun?: Message, model?: string): Promise<void> {
  const conversation = state.conversationOf(id);
  if (!conversation) return; // it was deleted meanwhile
  const asked = parent === undefined ? conversation.leaf : parent;
  const message: Message = begun
    ? { ...begun, finish: undefined, error: undefined, ...(!begun.content && { reasoning: undefined, toolCalls: undefined }) }
    : { id: state.newId(), conversation: id, parent: asked, created: Date.now(), role: "assistant", content: "" };
  const writer = new Writer(message);
  const options = model ? { ...conversation.options, model } : conversation.options;
  writing.add(message.id);
  written.add(message.id);
  askedModels.set(message.id, modelOf(options));
  try {
    state.announcement.value = t("Writing an answer");
    await writer.keep();
    await state.moveTo(id, message.id);
    const before = branch(await state.messagesOf(id), asked);
    void state.attempt(state.refreshModels); // it may have left memory since the last answer
    const body = bodyOf(options, begun?.content ? [...before, begun] : before, !!begun?.content);
    for await (const delta of chat(body, signal)) await writer.take(delta);
  } catch (error) {
    writer.fail(error);
  } finally {
    writing.delete(message.id);
    await writer.end();
    void state.attempt(state.refreshModels); // the model may have been loaded for this answer
    state.announcement.value = outcome(writer.message);
  }
}

function outcome(message: Message): string {
  if (message.error) return t("The answer failed");
  return message.finish === "stopped" ? t("The answer was stopped") : t("The answer is complete");
}

/** One answer as it grows. It is shown at most once a frame. */
class Writer {
  private started = performance.now();
  private firstMs = 0;
  private frame = 0;
  private kept = 0;

  constructor(public message: Message) {}

  async take(delta: Delta): Promise<void> {
    const message = { ...this.message };
    if (!this.firstMs && (delta.content || delta.reasoning || delta.toolCalls)) this.firstMs = this.elapsed();
    if (delta.reasoning) message.reasoning = (message.reasoning ?? "") + delta.reasoning;
    if (delta.content) message.content += delta.content;
    if (delta.toolCalls) message.toolCalls = withCalls(message.toolCalls ?? [], delta.toolCalls);
    if (message.reasoning && !message.reasoningMs && (delta.content || delta.toolCalls)) message.reasoningMs = this.elapsed();
    if (delta.finish) message.finish = delta.finish;
    if (delta.usage) {
      message.figures = {
        model: delta.model ?? "",
        tokens: delta.usage.completion_tokens,
        perSecond: delta.timings?.predicted_per_second ?? 0,
        promptTokens: delta.usage.prompt_tokens,
        cachedTokens: delta.usage.prompt_tokens_details?.cached_tokens ?? 0,
        firstMs: this.firstMs,
      };
    }
    this.message = message;
    state.remember(message);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      state.show(this.message);
    });
    if (performance.now() - this.kept > KEEP_EVERY) await this.keep();
  }

  fail(error: unknown): void {
    if ((error as Error).name === "AbortError") this.message = { ...this.message, finish: "stopped" };
    else this.message = { ...this.message, finish: "error", error: (error as Error).message };
    if (error instanceof ApiError && error.status === 401) state.needsKey.value = true;
  }

  async keep(): Promise<void> {
    this.kept = performance.now();
    this.message = { ...this.message, written: Date.now() };
    state.remember(this.message);
    await state.keepMessage(this.message);
  }

  async end(): Promise<void> {
    cancelAnimationFrame(this.frame);
    await this.keep();
  }

  private elapsed(): number {
    return Math.round(performance.now() - this.started);
  }
}

function withCalls(calls: readonly ToolCall[], deltas: NonNullable<Delta["toolCalls"]>): ToolCall[] {
  const found = [...calls];
  for (const { index, id, name, arguments: part } of deltas) {
    const call = found[index] ?? { id: "", name: "", arguments: "" };
    found[index] = { id: id ?? call.id, name: call.name + (name ?? ""), arguments: call.arguments + (part ?? "") };
  }
  return found;
}

const modelOf = (options: Options): string => options.model ?? state.models.value[0]?.id ?? "default";

/** The request for what comes after these messages. Throws for options that are no JSON. */
export function bodyOf(options: Options, before: readonly Message[], goesOn: boolean): object {
  const { system, tools, schema, reasoning, serverTools: _, ...sampling } = options;
  const all = [...(tools ? (parsed(tools, t("Tools")) as object[]) : []), ...chosenTools(options).map(({ definition }) => definition)];
  const said = before.filter((each) => each.role !== "assistant" || each.content || each.toolCalls); // no failed answers
  const lastUser = said.findLastIndex((each) => each.role === "user");
  const messages = said.map((message, index) => requestMessage(message, index > lastUser));
  return {
    ...sampling,
    model: modelOf(options),
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    ...(goesOn && { continue_final_message: true }),
    ...(reasoning && { enable_thinking: reasoning === "on" }),
    ...(all.length && { tools: all }),
    ...(schema && {
      response_format: { type: "json_schema", json_schema: { name: "answer", schema: parsed(schema, t("JSON schema of the answer")) } },
    }),
  };
}

/** Reasoning goes back only within the turn that it belongs to, where tools were called. */
function requestMessage(message: Message, withReasoning: boolean): object {
  const { role, content, attachments, reasoning, toolCalls, toolCallId } = message;
  if (role === "tool") return { role, content, tool_call_id: toolCallId };
  return {
    role,
    content: contentOf(content, attachments),
    ...(withReasoning && reasoning && { reasoning_content: reasoning }),
    ...(toolCalls && {
      tool_calls: toolCalls.map(({ id, name, arguments: text }) => ({
        id,
        type: "function",
        function: { name, arguments: text },
      })),
    }),
  };
}

function parsed(text: string, label: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(t("{label}: not JSON: {problem}", { label, problem: (error as Error).message }));
  }
}

function titleOf(text: string): string {
  const line = text.trim().split("\n")[0]!;
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}
