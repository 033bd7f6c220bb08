/** Where a message is written. */

import { useEffect, useRef } from "preact/hooks";

import { running, send, stop } from "./answer";
import { useElsewhere } from "./elsewhere";
import { Icon } from "./icons";
import { announcement, current, draft, isReady, models, options, setOptions, thread } from "./state";
import { sized } from "./sized";

export function Composer() {
  const area = useRef<HTMLTextAreaElement>(null);
  const id = current.value?.id;
  const busy = !!id && running.value.has(id);
  const last = thread.value.at(-1);
  const isElsewhere = useElsewhere(last, busy);
  const isWritten = busy || isElsewhere;
  const awaitsResults = !isWritten && !!last?.toolCalls?.length;
  useEffect(() => sized(area.current), [draft.value]);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) area.current?.focus();
  }, [id]);

  const submit = () => {
    const text = draft.value.trim();
    if (!text || !isReady.value) return;
    if (isWritten) {
      announcement.value = "An answer is being written. Stop it to send a message.";
      return;
    }
    draft.value = "";
    void send(text);
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
      <textarea
        ref={area}
        rows={1}
        value={draft.value}
        placeholder={awaitsResults ? "Or write something else" : "Write a message"}
        aria-label="Message"
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="row">
        <ModelChoice />
        {isWritten && draft.value.trim() && <span class="hint">Stop the answer (Esc) to send this</span>}
        {id && isWritten ? (
          <button key="stop" type="button" class="round" title="Stop (Esc)" aria-label="Stop" onClick={() => stop(id)}>
            <Icon name="stop" />
          </button>
        ) : (
          <button key="send" type="submit" class="round primary" title="Send (Enter)" aria-label="Send" disabled={!isReady.value || !draft.value.trim()}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

function ModelChoice() {
  const chosen = options.value.model ?? models.value[0]?.id ?? "";
  if (models.value.length < 2) return <span class="model">{chosen}</span>;
  return (
    <select
      class="model"
      aria-label="Model"
      value={chosen}
      onChange={(event) => void setOptions({ ...options.value, model: event.currentTarget.value })}
    >
      {models.value.map(({ id }) => (
        <option key={id} value={id}>{id}</option>
      ))}
    </select>
  );
}
