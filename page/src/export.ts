/** The open conversation as a file: what is shown, as messages that any client can send again. */

import { bodyOf } from "./answer";
import { current, options, thread } from "./state";

export function exportConversation(): void {
  const body = JSON.stringify(bodyOf(options.value, thread.value, false), null, 2);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([body], { type: "application/json" }));
  link.download = `${current.value!.title.replace(/[^\p{L}\p{N} _-]+/gu, "").trim() || "conversation"}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}
