/** Prompts that are kept under a name, in this browser. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";

import { IconButton } from "./buttons";
import { showDialog } from "./dialogs";
import { t } from "./language";
import { remembered } from "./remembered";
import { draft } from "./state";

const KEPT = "pumice.prompts";

/** Texts by name. */
export const prompts = signal<Readonly<Record<string, string>>>(remembered(KEPT));
export const isOpen = signal(false);

function keep(all: Record<string, string>): void {
  prompts.value = all;
  localStorage.setItem(KEPT, JSON.stringify(all));
}

/** Put a prompt where messages are written, after what is there. */
export function insert(name: string): void {
  draft.value = [draft.value, prompts.value[name]].filter(Boolean).join("\n");
}

export function Prompts() {
  if (!isOpen.value) return null;
  const close = () => (isOpen.value = false);
  const use = (name: string) => (insert(name), close());
  const remove = (name: string) => keep(Object.fromEntries(Object.entries(prompts.value).filter(([each]) => each !== name)));
  return (
    <dialog class="parameters" ref={showDialog} aria-label={t("Prompts")} onClose={close}>
      <div class="sheet">
        <header>
          <h2>{t("Prompts")}</h2>
          <IconButton icon="close" label={t("Close")} onClick={close} />
        </header>
        <ul class="prompts">
          {Object.keys(prompts.value).sort().map((name) => (
            <li key={name}>
              <button type="button" dir="auto" title={prompts.value[name]} onClick={() => use(name)}>{name}</button>
              <IconButton icon="trash" label={t("Delete {title}", { title: name })} onClick={() => remove(name)} />
            </li>
          ))}
        </ul>
        <NewPrompt />
      </div>
    </dialog>
  );
}

function NewPrompt() {
  const [name, setName] = useState("");
  const [text, setText] = useState(draft.value);
  const submit = (event: Event) => {
    event.preventDefault();
    keep({ ...prompts.value, [name.trim()]: text });
    setName("");
    setText("");
  };
  return (
    <form class="sheet-part" onSubmit={submit}>
      <label class="field">
        <span>{t("Name")}</span>
        <input dir="auto" maxLength={120} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>{t("Text")}</span>
        <textarea rows={6} dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="row end">
        <button type="submit" class="primary" disabled={!name.trim() || !text.trim()}>{t("Keep prompt")}</button>
      </div>
    </form>
  );
}
