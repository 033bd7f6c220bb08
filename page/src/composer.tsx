/** Where a message is written. */

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { running, send, stop } from "./answer";
import { useElsewhere } from "./elsewhere";
import { IconButton, isFirst } from "./buttons";
import { focusMessage } from "./focus";
import { Icon } from "./icons";
import { readFiles, MOST } from "./attachments";
import { Attached } from "./attached";
import { formatted, percent, t } from "./language";
import { Microphone } from "./microphone";
import { announcement, attached, attempt, chooseModel, current, draft, isReady, model, models, refreshModels, thread, tokensUsed } from "./state";
import { sized } from "./sized";

const nReading = signal(0); // times that files were given which are not read yet
let lastRead: Promise<void> = Promise.resolve(); // ends when those of the last time are

export function Composer() {
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const id = current.value?.id;
  const busy = !!id && running.value.has(id);
  const last = thread.value.at(-1);
  const isElsewhere = useElsewhere(last, busy);
  const isWritten = busy || isElsewhere;
  const awaitsResults = !isWritten && !!last?.toolCalls?.length;
  useEffect(() => sized(area.current), [draft.value]);
  useLayoutEffect(focusMessage, [id]); // at once: a frame later it would take the focus from what was clicked since

  const canSend = isReady.value && !nReading.value && !!(draft.value.trim() || attached.value.length);
  const submit = () => {
    const text = draft.value.trim();
    if (!canSend) return;
    if (isWritten) {
      announcement.value = t("An answer is being written. Stop it to send a message.");
      return;
    }
    const files = attached.value;
    draft.value = "";
    attached.value = [];
    void send(text, files);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <Attached attachments={attached.value} onRemove={(index) => (attached.value = attached.value.filter((_, each) => each !== index))} />
      <textarea
        ref={area}
        dir="auto"
        rows={1}
        value={draft.value}
        placeholder={awaitsResults ? t("Or write something else") : t("Write a message")}
        aria-label={t("Message")}
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={(event) => {
          if (!event.clipboardData?.files.length) return;
          event.preventDefault();
          void attach(event.clipboardData.files);
        }}
      />
      <div class="row">
        <IconButton icon="attach" label={t("Attach files")} onClick={() => picker.current?.click()} />
        <input ref={picker} type="file" multiple hidden aria-label={t("Files to attach")} onChange={(event) => void attach(event.currentTarget.files, event.currentTarget)} />
        <Microphone />
        <ModelChoice />
        <ContextUsed />
        {isWritten && draft.value.trim() && <span class="hint">{t("Stop the answer (Esc) to send this")}</span>}
        {id && isWritten ? (
          <button key="stop" type="button" class="round" title={t("Stop (Esc)")} aria-label={t("Stop")} onClick={(event) => isFirst(event) && stop(id)}>
            <Icon name="stop" />
          </button>
        ) : (
          <button key="send" type="submit" class="round primary" title={t("Send (Enter)")} aria-label={t("Send")} disabled={!canSend}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

/** Add files to the next message, in the order in which they were given; one that cannot be read is a line on the page. */
export async function attach(files: FileList | null, picker?: HTMLInputElement): Promise<void> {
  const given = [...(files ?? [])];
  if (picker) picker.value = ""; // so that the same file can be chosen again
  nReading.value++;
  lastRead = lastRead.then(() => attempt(() => read(given)));
  await lastRead;
  nReading.value--;
}

async function read(files: readonly File[]): Promise<void> {
  if (!model.value) await refreshModels(); // the page has just opened
  const added = await readFiles(files, model.value ?? {});
  if (attached.value.length + added.length > MOST) throw new Error(t("A message has at most {n} files.", { n: MOST }));
  attached.value = [...attached.value, ...added];
}

/** How much of the context the conversation takes. */
function ContextUsed() {
  const all = model.value?.n_ctx;
  const used = tokensUsed.value;
  if (!all || !used) return null;
  const values = { used: formatted(used), all: formatted(all) };
  return (
    <span class={used > 0.9 * all ? "context full" : "context"} title={t("The conversation takes {used} of {all} tokens of context", values)}>
      <span class="wide">{t("{used} of {all} tokens", values)}</span>
      <span class="narrow" role="img" aria-label={t("The conversation takes {used} of {all} tokens of context", values)}>{percent(used / all)}</span>
    </span>
  );
}

/** Bytes in GiB, with one digit after the point. */
function gibibytes(bytes: number): string {
  return `${formatted(Math.round(bytes / 2 ** 30 * 10) / 10)} GiB`;
}

function ModelChoice() {
  const chosen = model.value?.id ?? "";
  if (models.value.length < 2) return <span class="model">{chosen}</span>;
  return (
    <select
      class="model"
      aria-label={t("Model")}
      value={chosen}
      onChange={(event) => void chooseModel(event.currentTarget.value)}
    >
      {models.value.map(({ id, size, status }) => (
        <option key={id} value={id}>
          {[id, size && gibibytes(size), status === "loading" && t("loading"), status === "unloaded" && t("not loaded"), status === "failed" && t("failed")].filter(Boolean).join(" · ")}
        </option>
      ))}
    </select>
  );
}
