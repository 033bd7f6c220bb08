/** Conversations as files: the open one as a request, all of them to keep, and back. */

import { bodyOf } from "./answer";
import { has, isConversation, isMessage, isNumber, isPicture, listOf } from "./checks";
import { t } from "./language";
import { RANGES } from "./ranges";
import { conversations, current, keepConversation, keepMessage, messagesOf, models, newId, open, options, ready, thread } from "./state";
import type { Conversation, Message, Options } from "./types";

const FORM = "pumice-conversations";
const MAX_FILE = 256 << 20; // bytes

/** The open conversation: what is shown, as messages that any client can send again. */
export function exportConversation(): void {
  download(bodyOf(options.value, thread.value, false), fileName(current.value!.title));
}

/** The open conversation as a text to read: what was said, without reasoning and the results of tools. */
export function exportMarkdown(): void {
  const { title } = current.value!;
  const said = thread.value.filter(({ role, content }) => role !== "tool" && content);
  const parts = said.map(({ role, content }) => `## ${t(role === "user" ? "You" : "Answer")}\n\n${content.trim()}`);
  save([`# ${title}`, ...parts].join("\n\n") + "\n", `${fileName(title)}.md`, "text/markdown");
}

/** All conversations, with all of their versions. */
export async function exportAll(): Promise<void> {
  const all = [];
  for (const conversation of conversations.value) all.push({ conversation, messages: [...(await messagesOf(conversation.id)).values()] });
  download({ form: FORM, version: 1, conversations: all }, "conversations");
}

/** What either of them made. Throws for anything else. Returns how many conversations there were. */
export async function importFile(file: File): Promise<number> {
  if (file.size > MAX_FILE) throw new Error(t("{name} is larger than {n} MiB.", { name: file.name, n: MAX_FILE >> 20 }));
  let value: any;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error(t("{name} is not JSON.", { name: file.name }));
  }
  const all = value?.form === FORM ? value.conversations : Array.isArray(value?.messages) ? [ofRequest(value, file.name)] : null;
  if (!Array.isArray(all) || !all.every(isWhole)) throw new Error(t("{name} contains no conversations of this page.", { name: file.name }));
  await ready;
  const own = all.map(renamed);
  for (const { conversation, messages } of own) {
    await keepConversation(conversation);
    for (const message of messages) await keepMessage(message);
  }
  if (own.length === 1) await open(own[0]!.conversation);
  return all.length;
}

interface Whole {
  conversation: Conversation;
  messages: Message[];
}

/** The same with ids of its own, so that nothing which is here is overwritten. */
function renamed({ conversation, messages }: Whole): Whole {
  const own = newId();
  const ids = new Map(messages.map(({ id }) => [id, newId()]));
  const idOf = (id: string | null) => (id === null ? null : ids.get(id)!);
  return {
    conversation: { ...conversation, id: own, leaf: idOf(conversation.leaf) },
    messages: messages.map((each) => ({ ...each, id: ids.get(each.id)!, conversation: own, parent: idOf(each.parent) })),
  };
}

/** A conversation of the messages of a request, and of the parameters that the page has. To be checked. */
function ofRequest(body: any, filename: string): any {
  const id = newId();
  const now = Date.now();
  const messages: any[] = [];
  const system: string[] = [];
  for (const each of body.messages) {
    const { role, content, reasoning_content, tool_calls, tool_call_id } = each ?? {};
    const parts = Array.isArray(content) ? content : [{ type: "text", text: content ?? "" }];
    const text = parts.filter((part) => part?.type === "text").map((part) => part.text).join("\n");
    if (role === "system") {
      system.push(text);
      continue;
    }
    const pictures = parts.map((part) => part?.image_url?.url).filter(isPicture);
    messages.push({
      id: newId(),
      conversation: id,
      parent: messages.at(-1)?.id ?? null,
      created: now + messages.length,
      role,
      content: text,
      ...(pictures.length && { attachments: pictures.map((data, index) => ({ name: t("Image {n}", { n: index + 1 }), kind: "image", data })) }),
      ...(role === "assistant" && { finish: "stop" }),
      ...(reasoning_content && { reasoning: reasoning_content }),
      ...(tool_call_id && { toolCallId: tool_call_id }),
      ...(tool_calls && { toolCalls: Array.isArray(tool_calls) ? tool_calls.map((call) => ({ id: call?.id, ...call?.function })) : tool_calls }),
    });
  }
  const title = filename.replace(/\.json$/, "").slice(0, 60);
  const leaf = messages.at(-1)?.id ?? null;
  return { conversation: { id, title, created: now, updated: now, leaf, options: optionsOf(body, system.join("\n\n")) }, messages };
}

/** The parameters of a request, as far as the page has them. */
function optionsOf(body: any, system: string): Options {
  const numbers = RANGES.filter(({ name, min, max }) => isNumber(body[name]) && body[name] >= min && body[name] <= (max ?? Infinity));
  const schema = body.response_format?.json_schema?.schema;
  return {
    ...Object.fromEntries(numbers.map(({ name }) => [name, body[name]])),
    ...(models.value.some((model) => model.id === body.model) && { model: body.model }),
    ...(system && { system }),
    ...(typeof body.enable_thinking === "boolean" && { reasoning: body.enable_thinking ? "on" : "off" }),
    ...(Array.isArray(body.tools) && { tools: JSON.stringify(body.tools, null, 2) }),
    ...(schema && { schema: JSON.stringify(schema, null, 2) }),
  };
}

function isWhole(value: any): value is Whole {
  if (!has({ conversation: isConversation, messages: listOf(isMessage) })(value)) return false;
  const { conversation, messages } = value as Whole;
  const parents = new Map(messages.map(({ id, parent }) => [id, parent]));
  return parents.size === messages.length && (conversation.leaf === null || parents.has(conversation.leaf)) && allEnd(parents);
}

/** Whether each message follows others of the file up to a first one, which has no parent. */
function allEnd(parents: ReadonlyMap<string, string | null>): boolean {
  const ended = new Set<string>();
  for (const id of parents.keys()) {
    const chain = new Set<string>();
    let at: string | null = id;
    while (at !== null && !ended.has(at)) {
      if (!parents.has(at) || chain.has(at)) return false;
      chain.add(at);
      at = parents.get(at)!;
    }
    for (const each of chain) ended.add(each);
  }
  return true;
}

function fileName(title: string): string {
  return title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim() || "conversation";
}

function download(value: object, name: string): void {
  save(JSON.stringify(value, null, 2), `${name}.json`, "application/json");
}

function save(content: string, name: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
