/** Conversations as files: the open one as a request, all of them to keep, and back. */

import { bodyOf } from "./answer";
import { conversations, current, keepConversation, keepMessage, messagesOf, newId, open, options, thread } from "./state";
import type { Conversation, Message } from "./types";

const FORM = "pumice-conversations";
const MAX_FILE = 256 << 20; // bytes
const ROLES = ["user", "assistant", "tool"];
const ID = /^[A-Za-z0-9-]{1,64}$/;

/** The open conversation: what is shown, as messages that any client can send again. */
export function exportConversation(): void {
  const title = current.value!.title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim();
  download(bodyOf(options.value, thread.value, false), title || "conversation");
}

/** All conversations, with all of their versions. */
export async function exportAll(): Promise<void> {
  const all = [];
  for (const conversation of conversations.value) all.push({ conversation, messages: await messagesOf(conversation.id) });
  download({ form: FORM, version: 1, conversations: all }, "conversations");
}

/** What either of them made. Throws for anything else. Returns how many conversations there were. */
export async function importFile(file: File): Promise<number> {
  if (file.size > MAX_FILE) throw new Error(`${file.name} has more than ${MAX_FILE >> 20} MiB.`);
  let value: any;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error(`${file.name} is not JSON.`);
  }
  const all = value?.form === FORM ? value.conversations : Array.isArray(value?.messages) ? [ofRequest(value, file.name)] : null;
  if (!Array.isArray(all) || !all.every(isWhole)) throw new Error(`${file.name} holds no conversations of this page.`);
  for (const { conversation, messages } of all) {
    await keepConversation(conversation);
    for (const message of messages) await keepMessage(message);
  }
  if (all.length === 1) await open(all[0]!.conversation);
  return all.length;
}

interface Whole {
  conversation: Conversation;
  messages: Message[];
}

/** A conversation of the messages of a request. */
function ofRequest(body: any, filename: string): Whole {
  const id = newId();
  const now = Date.now();
  const messages: Message[] = [];
  let system: string | undefined;
  for (const { role, content, reasoning_content, tool_calls, tool_call_id } of body.messages) {
    const text = Array.isArray(content) ? content.map((part: any) => part.text ?? "").join("\n") : (content ?? "");
    if (role === "system") {
      system = text;
      continue;
    }
    messages.push({
      id: newId(),
      conversation: id,
      parent: messages.at(-1)?.id ?? null,
      created: now + messages.length,
      role,
      content: text,
      ...(role === "assistant" && { finish: "stop" }),
      ...(reasoning_content && { reasoning: String(reasoning_content) }),
      ...(tool_call_id && { toolCallId: tool_call_id }),
      ...(tool_calls && { toolCalls: tool_calls.map((call: any) => ({ id: call.id, ...call.function })) }),
    });
  }
  const title = filename.replace(/\.json$/, "").slice(0, 60);
  const leaf = messages.at(-1)?.id ?? null;
  return { conversation: { id, title, created: now, updated: now, leaf, options: system ? { system } : {} }, messages };
}

function isWhole(value: any): value is Whole {
  const { conversation, messages } = value ?? {};
  if (!conversation || !Array.isArray(messages) || !ID.test(conversation.id)) return false;
  const { title, created, updated, leaf, options: own } = conversation;
  const ids = new Set(messages.map((message) => message?.id));
  return (
    typeof title === "string" &&
    typeof created === "number" &&
    typeof updated === "number" &&
    typeof own === "object" &&
    own !== null &&
    (leaf === null || ids.has(leaf)) &&
    messages.every(
      (each) =>
        ID.test(each?.id) &&
        each.conversation === conversation.id &&
        ROLES.includes(each.role) &&
        typeof each.content === "string" &&
        typeof each.created === "number" &&
        (each.parent === null || ids.has(each.parent)) &&
        isAttached(each.attachments),
    )
  );
}

/** Pictures of a file stay data: nothing of another server is shown. */
function isAttached(value: any): boolean {
  const isRight = ({ name, kind, data }: any) =>
    typeof name === "string" && typeof data === "string" && (kind === "text" || (kind === "image" && /^data:image\/(png|jpeg);base64,/.test(data)));
  return value === undefined || (Array.isArray(value) && value.every((each) => each && isRight(each)));
}

function download(value: object, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  link.download = `${name}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}
