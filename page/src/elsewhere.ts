/** Answers that another window writes. */

import { useEffect, useState } from "preact/hooks";

import type { Message } from "./types";

const STILL_WRITTEN = 4000; // milliseconds since an unfinished answer was kept

/** Whether another window seems to write this answer. `isOwn`: this window writes it. */
export function useElsewhere(message: Message | undefined, isOwn: boolean): boolean {
  const [, look] = useState(0);
  const age = Date.now() - (message?.written ?? 0);
  const isElsewhere = message?.role === "assistant" && !message.finish && !isOwn && age < STILL_WRITTEN;
  useEffect(() => {
    if (!isElsewhere) return;
    const timer = setTimeout(() => look(Date.now()), STILL_WRITTEN - age + 50);
    return () => clearTimeout(timer);
  });
  return isElsewhere;
}
