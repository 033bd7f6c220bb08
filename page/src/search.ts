/** Search over titles and messages of all conversations. What was read once is kept until a conversation changes. */

import { signal } from "@preact/signals";

import { conversations, messagesOf } from "./state";
import type { Conversation } from "./types";

export const query = signal("");
export const found = signal<ReadonlySet<string> | null>(null); // ids; null: nothing is searched

const texts = new Map<string, { updated: number; text: string }>();
let turn = 0;

export async function search(words: string): Promise<void> {
  query.value = words;
  const wanted = fold(words).split(/\s+/).filter(Boolean);
  const own = ++turn;
  if (!wanted.length) {
    found.value = null;
    return;
  }
  const hits = new Set<string>();
  found.value = hits;
  for (const conversation of conversations.value) {
    const text = await textOf(conversation);
    if (own !== turn) return;
    if (wanted.every((word) => text.includes(word))) found.value = new Set([...found.value!, conversation.id]);
  }
}

async function textOf(conversation: Conversation): Promise<string> {
  const { id, title, updated } = conversation;
  const known = texts.get(id);
  if (known?.updated === updated) return `${fold(title)}\n${known.text}`;
  const said = [...(await messagesOf(id)).values()].map(({ content }) => fold(content)).join("\n");
  texts.set(id, { updated, text: said });
  return `${fold(title)}\n${said}`;
}

/** Without case and accents. */
function fold(text: string): string {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}
