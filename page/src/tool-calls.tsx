/** Calls of tools: those of the server run when they are allowed, the results of others are written by hand. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { giveResults, isFresh } from "./answer";
import { isFirst } from "./buttons";
import { CodeBlock } from "./code";
import { Icon } from "./icons";
import { t } from "./language";
import { options, thread } from "./state";
import { chosenTools, decide, decisionOf, MOST_TURNS, REFUSED, runTool } from "./server-tools";
import type { Message, ToolCall } from "./types";

export function ToolCalls({ message, canAnswer }: { message: Message; canAnswer: boolean }) {
  const calls = message.toolCalls!;
  const known = new Set(chosenTools(options.value).map(({ tool }) => tool));
  const [results, setResults] = useState<readonly (string | undefined)[]>([]);
  const isManual = calls.some(({ name }) => !known.has(name));
  const set = (index: number, text: string) => setResults((before) => calls.map((_, each) => (each === index ? text : before[each])));
  const isComplete = calls.every(({ name }, index) => !known.has(name) || results[index] !== undefined);
  const send = () => void giveResults(message, results.map((each) => each ?? ""));
  useLayoutEffect(() => {
    if (canAnswer && !isManual && isComplete && results.length) send();
  }, [results]);
  return (
    <div class="tool-calls">
      {calls.map((call, index) => (
        <section key={index} class="tool" aria-label={t("Call of {name}", { name: call.name })}>
          <p class="tool-name"><Icon name="tool" /><b>{call.name}</b></p>
          <CodeBlock code={pretty(call)} language="json" />
          {canAnswer && known.has(call.name) && results[index] === undefined && <Approval call={call} isFresh={isFresh(message)} set={(text) => set(index, text)} />}
          {canAnswer && !known.has(call.name) && (
            <textarea
              rows={2}
              placeholder={t("Result of the tool")}
              aria-label={t("Result of {name}", { name: call.name })}
              value={results[index] ?? ""}
              onInput={(event) => set(index, event.currentTarget.value)}
            />
          )}
        </section>
      ))}
      {canAnswer && (isManual || isComplete) && (
        <div class="row end">
          <button type="button" class="primary" disabled={!isComplete} onClick={send}>
            {calls.length > 1 ? t("Send results") : t("Send result")}
          </button>
        </div>
      )}
    </div>
  );
}

/** The question whether a call may run. What was decided for good is done at once, but only for an answer of this window. */
function Approval({ call, isFresh, set }: { call: ToolCall; isFresh: boolean; set: (text: string) => void }) {
  const [isRunning, setRunning] = useState(false);
  const controller = useRef<AbortController | null>(null);
  const run = () => {
    setRunning(true);
    controller.current = new AbortController();
    void runTool(call.name, call.arguments, controller.current.signal).then(set);
  };
  useEffect(() => {
    const decision = decisionOf(call.name);
    if (isFresh && decision && answersInTurn() <= MOST_TURNS) run();
    else if (isFresh && decision === false) set(REFUSED);
    return () => controller.current?.abort();
  }, []);
  if (isRunning) {
    return (
      <div class="row end">
        <span class="note" role="status">{t("Running")}</span>
        <button type="button" onClick={(event) => isFirst(event) && controller.current?.abort()}>{t("Stop")}</button>
      </div>
    );
  }
  const always = () => (decide(call.name, true), run());
  const never = () => (decide(call.name, false), set(REFUSED));
  return (
    <div class="row end" role="group" aria-label={t("May {name} run?", { name: call.name })}>
      <button type="button" onClick={never}>{t("Never")}</button>
      <button type="button" onClick={() => set(REFUSED)}>{t("Refuse")}</button>
      <button type="button" onClick={always}>{t("Always")}</button>
      <button type="button" class="primary" onClick={run}>{t("Run")}</button>
    </div>
  );
}

/** How many answers made calls since somebody last said something. */
function answersInTurn(): number {
  const all = thread.value;
  return all.slice(all.findLastIndex(({ role }) => role === "user")).filter(({ toolCalls }) => toolCalls).length;
}

function pretty(call: ToolCall): string {
  try {
    return JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    return call.arguments; // not written to its end yet
  }
}
