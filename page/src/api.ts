/** The server's endpoints: OpenAI's chat completions and models, and what the page asks about itself. */

import { signal } from "@preact/signals";

import { key, t } from "./language";
import type { Model } from "./types";

const KEY = "pumice.key";
const CUT = key("The connection ended before the answer did.");
export const LOST = key("The server does not answer. Is it still running?");

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export interface Delta {
  content?: string;
  reasoning?: string;
  toolCalls?: { index: number; id?: string; name?: string; arguments?: string }[];
  finish?: string;
  model?: string;
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } };
  timings?: { predicted_per_second?: number };
}

export const apiKey = {
  get: (): string => localStorage.getItem(KEY) ?? "",
  set: (key: string): void => (key ? localStorage.setItem(KEY, key) : localStorage.removeItem(KEY)),
};

export const isLost = signal(false); // whether nobody answered the last request

/** A request to this server. Throws ApiError for an answer that is none, and where nobody answers. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (apiKey.get()) headers.set("Authorization", `Bearer ${apiKey.get()}`);
  if (typeof init.body === "string") headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    isLost.value = true;
    throw new ApiError(t(LOST), 0);
  }
  isLost.value = false;
  if (!response.ok) throw new ApiError(await problemOf(response), response.status);
  return response;
}

export async function models(): Promise<Model[]> {
  const listed = (await (await ask("v1/models")).json()) as {
    data: { id: string; parent?: string; status?: { value: string }; meta?: { n_ctx?: number; size?: number } }[];
    models?: { name: string; capabilities?: string[]; details?: { family?: string } }[];
  };
  const described = new Map((listed.models ?? []).map((each) => [each.name, each]));
  return listed.data.map(({ id, parent, status, meta }) => {
    const { capabilities = [], details } = described.get(id) ?? described.get(parent ?? "") ?? {};
    const can = (name: string) => capabilities.includes(name);
    return {
      id, n_ctx: meta?.n_ctx, size: meta?.size, status: status?.value,
      sees: can("vision"), watches: can("video"), hears: can("audio"), transcribes: details?.family === "whisper",
    };
  });
}

/** What is said in a sound file. Throws ApiError. */
export async function transcribe(model: string, sound: Blob): Promise<string> {
  const body = new FormData();
  body.append("model", model);
  body.append("file", sound, "speech.wav");
  return (await (await ask("v1/audio/transcriptions", { method: "POST", body })).json()).text.trim();
}

/** The text of a PDF file in base64, which the server reads. Throws ApiError. */
export async function pdfText(pdf: string): Promise<string> {
  return (await (await ask("extract-text", { method: "POST", body: JSON.stringify({ pdf }) })).json()).text;
}

/** What the page must know of the server. */
export interface Properties {
  sampling: Record<string, unknown>; // parameters of a request without any
  keepsConversations: boolean;
  runsTools: boolean; // whether it lists tools at `tools`
}

export async function properties(): Promise<Properties> {
  const props = await (await ask("props")).json();
  return {
    sampling: props.default_generation_settings?.params ?? {},
    keepsConversations: props.ui_settings?.conversations === "server",
    runsTools: !!props.ui_settings?.tools,
  };
}

/** An answer to a chat as it is written. Throws ApiError, also for one that ends with an error. */
export async function* chat(body: object, signal: AbortSignal): AsyncGenerator<Delta> {
  const request = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await ask("v1/chat/completions", { method: "POST", body: JSON.stringify(request), signal });
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const part = JSON.parse(data);
    if (part.error) throw new ApiError(part.error.message ?? t("The answer ended with an error."), part.error.code ?? 500);
    yield deltaOf(part);
  }
  throw new ApiError(t(CUT), 0);
}

function deltaOf(part: any): Delta {
  const choice = part.choices?.[0] ?? {};
  const { content, reasoning_content, tool_calls } = choice.delta ?? {};
  return {
    content: content ?? undefined,
    reasoning: reasoning_content ?? undefined,
    toolCalls: tool_calls?.map((call: any) => ({ index: call.index, id: call.id, ...call.function })),
    finish: choice.finish_reason ?? undefined,
    model: part.model,
    usage: part.usage ?? undefined,
    timings: part.timings,
  };
}

/** The data of server-sent events. */
async function* events(response: Response): AsyncGenerator<string> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error: Error) => {
        throw error.name === "AbortError" ? error : new ApiError(t(CUT), 0);
      });
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop()!;
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trimStart();
    }
  } finally {
    reader.cancel().catch(() => undefined); // of a request that was stopped
  }
}

async function problemOf(response: Response): Promise<string> {
  try {
    const { error } = await response.json();
    if (error.type === "exceed_context_size_error" && error.n_prompt_tokens) {
      const { n_prompt_tokens: n, n_ctx: most } = error;
      return t("This conversation has {n} tokens, and the model reads {most}. Leave out a file, or begin a new one.", { n, most });
    }
    return error.message ?? error;
  } catch {
    return t("The server answered {status}.", { status: `${response.status} ${response.statusText}` });
  }
}
