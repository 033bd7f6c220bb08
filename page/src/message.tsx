/** One message of a conversation, and what can be done with it. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { awaitsLoad, edit, goOn, retry, running } from "./answer";
import { Attached } from "./attached";
import { CopyButton, IconButton } from "./buttons";
import { CodeBlock } from "./code";
import { beside, Compare } from "./compare";
import { useElsewhere } from "./elsewhere";
import { focusMessage } from "./focus";
import { t } from "./language";
import { Markdown } from "./markdown";
import { memo } from "./memo";
import { messages, models, moveTo, versionIds } from "./state";
import { ToolCalls } from "./tool-calls";
import { newestLeaf, versions } from "./tree";
import { sized } from "./sized";
import type { Attachment, Figures, Message } from "./types";

interface Properties {
  message: Message;
  isLast: boolean;
  busy: boolean; // an answer is being written in this conversation
}

export const MessageView = memo(function MessageView(properties: Properties) {
  const { role } = properties.message;
  if (role === "user") return <UserMessage {...properties} />;
  return role === "tool" ? <ToolResult {...properties} /> : <Answer {...properties} />;
});

function UserMessage({ message, busy }: Properties) {
  const [editing, setEditing] = useState(false);
  if (editing) return <Editor message={message} onDone={() => setEditing(false)} />;
  return (
    <article class="message user" aria-label={t("You")}>
      <h2 class="unseen">{t("You")}</h2>
      <Attached attachments={message.attachments ?? []} />
      {message.content && <div class="bubble" dir="auto">{message.content}</div>}
      <Actions message={message} busy={busy}>
        <CopyButton text={message.content} label={t("Copy message")} />
        <IconButton icon="edit" label={t("Edit message")} disabled={busy} onClick={() => setEditing(true)} />
      </Actions>
    </article>
  );
}

function Editor({ message, onDone }: { message: Message; onDone: () => void }) {
  const [text, setText] = useState(message.content);
  const [files, setFiles] = useState<readonly Attachment[]>(message.attachments ?? []);
  useEffect(() => focusMessage, []);
  const submit = () => {
    if (!text.trim()) return;
    onDone();
    void edit(message, text, files);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") onDone();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  };
  return (
    <article class="message user editing" aria-label={t("You")}>
      <Attached attachments={files} onRemove={(index) => setFiles(files.filter((_, each) => each !== index))} />
      <textarea
        ref={(area) => sized(area, true)}
        dir="auto"
        value={text}
        aria-label={t("Edit message")}
        onInput={(event) => {
          setText(event.currentTarget.value);
          sized(event.currentTarget);
        }}
        onKeyDown={onKeyDown}
      />
      <div class="row end">
        <button type="button" onClick={onDone}>{t("Cancel")}</button>
        <button type="button" class="primary" disabled={!text.trim()} onClick={submit}>{t("Send")}</button>
      </div>
    </article>
  );
}

function Answer({ message, isLast, busy }: Properties) {
  const isWriting = busy && isLast && !message.finish;
  const isElsewhere = useElsewhere(message, isWriting);
  const isInterrupted = !message.finish && !isWriting;
  const canGoOn = isLast && !busy && !isElsewhere && !!message.content && (isInterrupted || ["length", "stopped", "error"].includes(message.finish!));
  return (
    <article class="message answer" aria-label={t("Answer")} aria-busy={isWriting}>
      <h2 class="unseen">{t("Answer")}</h2>
      {message.reasoning && <Reasoning message={message} isWriting={isWriting} />}
      {message.content && <Markdown text={message.content} />}
      {message.toolCalls && <ToolCalls message={message} canAnswer={isLast && !busy} />}
      {isWriting && !message.content && !message.reasoning && (
        <>
          <p class="waiting" aria-hidden="true"><i /><i /><i /></p>
          {awaitsLoad(message) && <p class="note">{t("The model is loaded first, which can take a while.")}</p>}
        </>
      )}
      {message.error && <p class="problem" role="alert">{message.error}</p>}
      {isInterrupted && <p class="note">{isElsewhere ? t("Being generated in another window") : t("Interrupted")}</p>}
      {message.finish === "stopped" && <p class="note">{t("Stopped")}</p>}
      {message.finish === "length" && <p class="note">{t("Cut off: the token limit was reached")}</p>}
      {!isWriting && (
        <Actions message={message} busy={busy}>
          <CopyButton text={message.content} label={t("Copy answer")} />
          <IconButton icon="retry" label={t("Try again")} disabled={busy} onClick={() => void retry(message)} />
          {models.value.length > 1 && <OtherModel message={message} busy={busy} />}
          {canGoOn && <IconButton icon="forward" label={t("Continue")} onClick={() => void goOn(message)} />}
          {message.figures && <FiguresView figures={message.figures} />}
        </Actions>
      )}
    </article>
  );
}

function Reasoning({ message, isWriting }: { message: Message; isWriting: boolean }) {
  const isThinking = isWriting && !message.content && !message.toolCalls;
  const seconds = message.reasoningMs && Math.max(1, Math.round(message.reasoningMs / 1000));
  const summary = isThinking ? t("Thinking") : seconds ? t("Thought for {n} s", { n: seconds }) : t("Thoughts");
  return (
    <details class={isThinking ? "reasoning thinking" : "reasoning"}>
      <summary>{summary}</summary>
      <Markdown text={message.reasoning!} />
    </details>
  );
}

function ToolResult({ message }: Properties) {
  return (
    <article class="message tool-result" aria-label={t("Result of a tool")}>
      <h2 class="unseen">{t("Result of a tool")}</h2>
      <CodeBlock code={message.content} language="result" />
    </article>
  );
}

/** Lets another model answer, beside this answer. */
function OtherModel({ message, busy }: { message: Message; busy: boolean }) {
  const label = t("Answer with another model");
  const ask = (model: string) => {
    beside.value = message;
    void retry(message, model);
  };
  return (
    <select class="other-model" aria-label={label} title={label} disabled={busy} value="" onChange={(event) => ask(event.currentTarget.value)}>
      <option value="">⇄</option>
      {models.value.map(({ id }) => <option key={id} value={id}>{id}</option>)}
    </select>
  );
}

function Actions({ message, busy, children }: { message: Message; busy: boolean; children: ComponentChildren }) {
  const [compares, setCompares] = useState(false);
  const all = versionIds.value.get(message.parent) ?? []; // not of messages.value, which changes with each word
  const index = all.indexOf(message.id);
  const go = (to: number) => void moveTo(message.conversation, newestLeaf(messages.value, all[to]!));
  const isRunning = busy || running.value.has(message.conversation);
  return (
    <div class="actions">
      {all.length > 1 && (
        <span class="versions" role="group" aria-label={t("Versions")}>
          <IconButton icon="left" label={t("Previous version")} disabled={isRunning || index === 0} onClick={() => go(index - 1)} />
          <span>{index + 1}/{all.length}</span>
          <IconButton icon="right" label={t("Next version")} disabled={isRunning || index === all.length - 1} onClick={() => go(index + 1)} />
          <IconButton icon="compare" label={t("Compare versions")} disabled={isRunning} onClick={() => setCompares(true)} />
        </span>
      )}
      {compares && <Compare versions={versions(messages.value, message)} index={index} onClose={() => setCompares(false)} />}
      {children}
    </div>
  );
}

function FiguresView({ figures }: { figures: Figures }) {
  const { tokens, perSecond, promptTokens, cachedTokens, firstMs, model } = figures;
  const values = { model, n: promptTokens, cached: cachedTokens, seconds: (firstMs / 1000).toFixed(2) };
  const details = t("{model}: prompt of {n} tokens, {cached} of them cached; first text after {seconds} s", values);
  return (
    <span class="figures" title={details}>
      {models.value.length > 1 && model && <>{model} · </>}
      {tokens === 1 ? t("1 token") : t("{n} tokens", { n: tokens })}
      {perSecond > 0 && <> · {t("{n} tokens/s", { n: perSecond.toFixed(1) })}</>}
    </span>
  );
}
