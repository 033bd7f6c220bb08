/** Whether values from files and from the server are parts of conversations. */

import { RANGES } from "./ranges";

type Check = (value: any) => boolean;

const isString: Check = (value) => typeof value === "string";
/** Ids are parts of addresses. */
const isId: Check = (value) => isString(value) && /^[\w-]+$/.test(value);
export const isNumber: Check = (value) => Number.isFinite(value);
/** Pictures of a file are data: nothing of another server is shown. */
export const isPicture: Check = (value) => isString(value) && /^data:image\/(png|jpeg);base64,/.test(value);
const isVideo: Check = (value) => isString(value) && /^data:video\/[\w.+-]+;base64,/.test(value);
const orNone = (check: Check): Check => (value) => value === undefined || check(value);
const orNull = (check: Check): Check => (value) => value === null || check(value);
export const listOf = (check: Check): Check => (value) => Array.isArray(value) && value.every(check);
export const has = (fields: Record<string, Check>): Check => (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.entries(fields).every(([name, check]) => check(value[name]));

const isAttachment: Check = (value) =>
  has({ name: isString, data: isString })(value) &&
  (value.kind === "text" || (value.kind === "image" && isPicture(value.data)) || (value.kind === "video" && isVideo(value.data)));

const isFigures = has({ model: isString, tokens: isNumber, perSecond: isNumber, promptTokens: isNumber, cachedTokens: isNumber, firstMs: isNumber });

export const isMessage = has({
  id: isId,
  parent: orNull(isString),
  created: isNumber,
  role: (value) => ["user", "assistant", "tool"].includes(value),
  content: isString,
  attachments: orNone(listOf(isAttachment)),
  reasoning: orNone(isString),
  reasoningMs: orNone(isNumber),
  toolCalls: orNone(listOf(has({ id: isString, name: isString, arguments: isString }))),
  toolCallId: orNone(isString),
  finish: orNone(isString),
  written: orNone(isNumber),
  error: orNone(isString),
  figures: orNone(isFigures),
});

const isOptions = has({
  ...Object.fromEntries(RANGES.map(({ name }) => [name, orNone(isNumber)])),
  serverTools: orNone(listOf(isString)),
  ...Object.fromEntries(["model", "system", "tools", "schema"].map((name) => [name, orNone(isString)])),
  reasoning: orNone((value) => value === "on" || value === "off"),
});

export const isConversation = has({ id: isId, title: isString, folder: orNone(isString), created: isNumber, updated: isNumber, leaf: orNull(isString), options: isOptions });
