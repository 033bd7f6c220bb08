/** What the page knows: the conversations, the one that is open, and what happens to them. */

import { computed, effect, signal } from "@preact/signals";

import * as api from "./api";
import { remembered } from "./remembered";
import { findTools } from "./server-tools";
import { BrowserStore, ServerStore, type Store } from "./store";
import { branch, byParent, newestLeaf } from "./tree";
import type { Attachment, Conversation, Message, Model, Options } from "./types";

export const conversations = signal<readonly Conversation[]>([]);
export const current = signal<Conversation | null>(null); // null: a new one, not kept yet
export const messages = signal<ReadonlyMap<string, Message>>(new Map()); // of the current conversation
export const models = signal<readonly Model[]>([]);
export const defaults = signal<Record<string, unknown>>({}); // sampling parameters of the model
export const keptBy = signal<"browser" | "server">("browser");
export const isReady = signal(false); // whether it is known where conversations are kept, and which there are
export const needsKey = signal(false);
export const notice = signal(""); // one line about what went wrong outside of an answer
export const announcement = signal(""); // for screen readers
export const attached = signal<readonly Attachment[]>([]); // files of the next message
export const draft = signal(sessionStorage.getItem("pumice.draft") ?? "");
export const newOptions = signal<Options>(remembered("pumice.options")); // of the next new conversation

export const thread = computed(() => branch(messages.value, current.value?.leaf ?? null));
let siblings: ReadonlyMap<string | null, readonly string[]> = new Map();
let knownIds: ReadonlySet<string> = new Set();

/** Ids of messages by their parent, the oldest first: the same as long as none is added or removed, whatever is written. */
export const versionIds = computed(() => {
  const all = messages.value;
  if (all.size !== knownIds.size || ![...all.keys()].every((id) => knownIds.has(id))) {
    knownIds = new Set(all.keys());
    siblings = byParent(all);
  }
  return siblings;
});

export const options = computed(() => current.value?.options ?? newOptions.value);

export const model = computed(() => models.value.find(({ id }) => id === options.value.model) ?? models.value[0]);

/** Tokens that the open conversation takes, as of its last answer. */
export const tokensUsed = computed(() => {
  const figures = thread.value.findLast(({ figures }) => figures)?.figures;
  return figures ? figures.promptTokens + figures.tokens : 0;
});

const MOST_OWN = 16; // answers that this tab remembers

/** The latest answers that this tab writes or wrote, which are further here than where they are kept, or were when that was read. */
const ownAnswers = new Map<string, Message>();

export function remember(answer: Message): void {
  ownAnswers.delete(answer.id); // so that it is the last one
  ownAnswers.set(answer.id, answer);
  if (ownAnswers.size > MOST_OWN) ownAnswers.delete(ownAnswers.keys().next().value!);
}

const RETRY_EVERY = 2000; // milliseconds between two looks for a server that does not answer

let store: Store = new BrowserStore();
let opening = 0; // counts what was opened, so that only the last one is shown
let changes = 0; // counts what this tab changed in the list, so that no older one takes its place
const removed = new Set<string>(); // ids of conversations that were deleted: nothing more of them is kept

/** Tabs tell each other which conversation changed. */
const tabs = new BroadcastChannel("pumice");
tabs.onmessage = ({ data }) => void reload(data as string);

export const newId = (): string =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Ask the server what it is, then show what the address names. */
export async function start(): Promise<void> {
  const isKnown = await introduce();
  if (needsKey.value) return;
  await attempt(refresh);
  await openAddressed();
  isReady.value = true;
  addEventListener("hashchange", () => void openAddressed());
  addEventListener("focus", () => void attempt(refresh));
  if (!isKnown) void introduceLater();
}

/** Ask the server for its models, and where it keeps conversations. Returns false if it does not tell now. */
async function introduce(): Promise<boolean> {
  try {
    await refreshModels();
    const { sampling, keepsConversations, runsTools } = await api.properties();
    defaults.value = sampling;
    keptBy.value = keepsConversations ? "server" : "browser";
    if (keepsConversations) store = new ServerStore();
    if (runsTools) await findTools();
    notice.value = "";
    needsKey.value = false;
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}

/** Ask until the server tells: else this tab would show the browser's conversations instead of the server's. */
async function introduceLater(): Promise<void> {
  do await new Promise((done) => setTimeout(done, RETRY_EVERY));
  while (!(await introduce()));
  await attempt(refresh);
  if (!current.value) await openAddressed();
}

/** Do something whose failure is a line on the page. */
export async function attempt(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    report(error);
  }
}

export function report(error: unknown): void {
  if (error instanceof api.ApiError && error.status === 401) needsKey.value = true;
  else if (api.isLost.value) return; // which the page shows as long as it lasts
  else notice.value = error instanceof Error ? error.message : String(error);
}

/** What was reported belongs to the conversation that was open; what the start of the page reports stays. */
function forgetNotice(): void {
  if (isReady.value) notice.value = "";
}

export async function refreshModels(): Promise<void> {
  models.value = await api.models();
}

async function refresh(): Promise<void> {
  const turn = changes;
  const found = await store.conversations();
  if (turn !== changes) return refresh();
  conversations.value = found.sort((a, b) => b.updated - a.updated);
}

/** Another tab, or an answer in the background, changed this conversation. */
async function reload(id: string): Promise<void> {
  await attempt(async () => {
    await refresh();
    const open = current.value;
    const kept = conversations.value.find((each) => each.id === id);
    if (!kept) removed.add(id);
    if (open?.id !== id) return;
    if (!kept) return startNew();
    const found = await store.messages(id);
    if (current.value?.id !== id) return;
    messages.value = new Map([...messages.value, ...byId(found)]); // with one of this tab that is on its way
    const leaf = open.leaf && messages.value.has(open.leaf) ? newestLeaf(messages.value, open.leaf) : kept.leaf;
    current.value = { ...kept, leaf };
  });
}

async function openAddressed(): Promise<void> {
  const id = location.hash.slice(1);
  const found = conversations.value.find((each) => each.id === id);
  if (found) await open(found);
  else startNew();
}

export async function open(conversation: Conversation): Promise<void> {
  if (current.value?.id === conversation.id) return;
  const turn = ++opening;
  forgetNotice();
  await attempt(async () => {
    const found = await store.messages(conversation.id);
    if (turn !== opening) return;
    messages.value = byId(found);
    current.value = conversation;
    setAddress(conversation.id);
  });
}

export function startNew(): void {
  opening++;
  forgetNotice();
  current.value = null;
  messages.value = new Map();
  setAddress("");
}

function setAddress(id: string): void {
  if (location.hash.slice(1) !== id) history.pushState(null, "", id ? `#${id}` : location.pathname);
}

/** The open conversation. A new one is shown at once, and the promise ends when it is kept. */
export function ensureConversation(title: string): [Conversation, Promise<void>?] {
  if (current.value) return [current.value];
  const now = Date.now();
  const made = { id: newId(), title, created: now, updated: now, leaf: null, options: newOptions.value };
  current.value = made;
  setAddress(made.id);
  return [made, keepNew(made)];
}

async function keepNew(made: Conversation): Promise<void> {
  try {
    await keepConversation(made);
  } catch (error) {
    conversations.value = conversations.value.filter((each) => each.id !== made.id);
    if (current.value?.id === made.id) startNew();
    throw error;
  }
}

/** The conversation `id` as it is now; undefined if it was deleted. */
export const conversationOf = (id: string): Conversation | undefined =>
  current.value?.id === id ? current.value : conversations.value.find((each) => each.id === id);

/** The messages of a conversation, which need not be the open one, by their ids. */
export async function messagesOf(id: string): Promise<ReadonlyMap<string, Message>> {
  if (current.value?.id === id) return messages.value;
  return byId(await store.messages(id));
}

/** Messages of the store, with what this tab has written since. Another window may have gone on with an answer later. */
function byId(kept: readonly Message[]): Map<string, Message> {
  const latest = (each: Message): Message => {
    const own = ownAnswers.get(each.id);
    return own && (own.written ?? 0) >= (each.written ?? 0) ? own : each;
  };
  return new Map(kept.map((each) => [each.id, latest(each)]));
}

export async function keepConversation(conversation: Conversation): Promise<void> {
  changes++;
  if (current.value?.id === conversation.id) current.value = conversation;
  const others = conversations.value.filter((each) => each.id !== conversation.id);
  conversations.value = [conversation, ...others].sort((a, b) => b.updated - a.updated);
  await store.putConversation(conversation);
  tabs.postMessage(conversation.id);
}

/** Show a message as it is now, without keeping it. */
export function show(message: Message): void {
  if (current.value?.id === message.conversation) messages.value = new Map(messages.value).set(message.id, message);
}

/** Show a message no longer, which could not be kept. */
export function forget(message: Message): void {
  messages.value = new Map([...messages.value].filter(([id]) => id !== message.id));
}

/** Keep a message, unless its conversation was deleted. */
export async function keepMessage(message: Message): Promise<void> {
  if (removed.has(message.conversation)) return;
  show(message);
  await store.putMessage(message);
  tabs.postMessage(message.conversation);
}

/** Make `leaf` the end of what is shown of a conversation. */
export async function moveTo(id: string, leaf: string): Promise<void> {
  const found = conversationOf(id);
  if (found) await keepConversation({ ...found, leaf, updated: Date.now() });
}

export async function rename(conversation: Conversation, title: string): Promise<void> {
  await attempt(() => keepConversation({ ...conversation, title }));
}

/** Put a conversation into a folder; an empty name takes it out of its folder. */
export async function move(conversation: Conversation, folder: string): Promise<void> {
  await attempt(() => keepConversation({ ...conversation, folder: folder || undefined }));
}

export async function remove(conversation: Conversation): Promise<void> {
  await attempt(async () => {
    changes++;
    removed.add(conversation.id);
    conversations.value = conversations.value.filter((each) => each.id !== conversation.id);
    if (current.value?.id === conversation.id) startNew();
    try {
      await store.remove(conversation.id);
    } catch (error) {
      removed.delete(conversation.id);
      await refresh();
      throw error;
    }
    tabs.postMessage(conversation.id);
  });
}

/** Parameters of the open conversation, and of the next new one. */
export async function setOptions(chosen: Options): Promise<void> {
  newOptions.value = chosen;
  const kept = current.value && attempt(() => keepConversation({ ...current.value!, options: chosen }));
  if (isKeptForModel()) keepForModel(true);
  await kept;
}

/** Parameters that belong to models, by name: they are taken over when the model is chosen. */
const ofModels = signal<Readonly<Record<string, Options>>>(remembered("pumice.models"));

export const isKeptForModel = (): boolean => !!model.value && model.value.id in ofModels.value;

/** Keep the present parameters for the present model; `false`: keep none for it. */
export function keepForModel(keeps: boolean): void {
  const { [model.value!.id]: _, ...others } = ofModels.value;
  ofModels.value = keeps ? { ...others, [model.value!.id]: options.value } : others;
  localStorage.setItem("pumice.models", JSON.stringify(ofModels.value));
}

/** Go on with another model, and with the parameters that are kept for it. */
export async function chooseModel(id: string): Promise<void> {
  await setOptions({ ...(ofModels.value[id] ?? options.value), model: id });
}

/** Ends when it is known where conversations are kept, and which there are. */
export const ready = new Promise<void>((resolve) => effect(() => void (isReady.value && resolve())));

effect(() => sessionStorage.setItem("pumice.draft", draft.value));
effect(() => {
  if (!api.isLost.value) return;
  const timer = setInterval(() => void attempt(refreshModels), RETRY_EVERY);
  return () => clearInterval(timer);
});
effect(() => localStorage.setItem("pumice.options", JSON.stringify(newOptions.value)));
