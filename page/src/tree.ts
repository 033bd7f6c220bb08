/** Branches of a conversation. */

import type { Message } from "./types";

export type Messages = ReadonlyMap<string, Message>;

/** The messages from the first one to `leaf`. */
export function branch(messages: Messages, leaf: string | null): Message[] {
  const found = new Set<Message>();
  for (let at = leaf; at !== null; ) {
    const message = messages.get(at);
    if (!message || found.has(message)) break;
    found.add(message);
    at = message.parent;
  }
  return [...found].reverse();
}

/** The versions of a message, itself among them, the oldest first. */
export function versions(messages: Messages, message: Message): Message[] {
  return children(messages, message.parent);
}

/** The end of the newest branch that goes through `id`. */
export function newestLeaf(messages: Messages, id: string): string {
  const passed = new Set<string>();
  for (let at = id; ; ) {
    passed.add(at);
    const last = children(messages, at).at(-1);
    if (!last || passed.has(last.id)) return at;
    at = last.id;
  }
}

/** Ids of messages by their parent, the oldest first. */
export function byParent(messages: Messages): Map<string | null, string[]> {
  const found = new Map<string | null, string[]>();
  for (const { id, parent } of [...messages.values()].sort((a, b) => a.created - b.created)) {
    found.set(parent, [...(found.get(parent) ?? []), id]);
  }
  return found;
}

function children(messages: Messages, parent: string | null): Message[] {
  return [...messages.values()].filter((each) => each.parent === parent).sort((a, b) => a.created - b.created);
}
