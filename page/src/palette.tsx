/** Everything by the keyboard: Ctrl+K lists what can be done, models and conversations; words choose among them. */

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

import { t } from "./language";
import { insert, prompts } from "./prompts";
import { chooseModel, conversations, models, open, startNew } from "./state";

const opening = signal(0); // number of the opening that is shown, 0: none
let nOpenings = 0;

/** Open or close the palette. Its element follows the value late when a row closes it, and the value the element on Escape: either closed is closed. */
export function togglePalette(): void {
  const isOpen = opening.value > 0 && document.querySelector<HTMLDialogElement>("dialog.palette")?.open;
  opening.value = isOpen ? 0 : ++nOpenings;
}

function close(): void {
  opening.value = 0;
}

const MOST = 30; // rows that are shown

interface Row {
  label: string;
  hint: string;
  act: () => void;
}

export function Palette({ actions }: { actions: readonly Row[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const shown = useRef(0);
  useEffect(() => {
    shown.current = opening.value;
    if (!opening.value) dialog.current?.close();
    else if (!dialog.current?.open) dialog.current?.showModal();
  }, [opening.value]);
  const onClose = () => {
    // The event comes late: the dialog may have been opened again since, or is to be.
    if (opening.value === shown.current && !dialog.current?.open) close();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label={t("Commands")} onClose={onClose} onClick={(event) => event.target === dialog.current && close()}>
      {opening.value > 0 && <Choice key={opening.value} actions={actions} />}
    </dialog>
  );
}

function Choice({ actions }: { actions: readonly Row[] }) {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const rows = rowsFor(actions, words);
  const run = (row: Row | undefined) => {
    if (!row) return;
    close();
    row.act();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((at + step + rows.length) % Math.max(1, rows.length));
    else if (event.key === "Enter" && !event.isComposing) run(rows[at]);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        role="combobox"
        aria-label={t("Command or conversation")}
        aria-expanded="true"
        aria-controls="palette-rows"
        aria-activedescendant={rows.length ? `palette-${at}` : undefined}
        placeholder={t("Search commands and conversations")}
        value={words}
        ref={(input) => input?.focus()}
        onInput={(event) => {
          setWords(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="palette-rows" role="listbox" aria-label={t("Commands and conversations")}>
        {rows.map((row, index) => (
          <li key={index} id={`palette-${index}`} role="option" aria-selected={index === at} ref={index === at ? intoView : undefined} onClick={() => run(row)}>
            <span dir="auto">{row.label}</span>
            <kbd>{row.hint}</kbd>
          </li>
        ))}
      </ul>
      {!rows.length && <p class="note">{t("No results.")}</p>}
    </>
  );
}

function intoView(item: HTMLLIElement | null): void {
  item?.scrollIntoView({ block: "nearest" });
}

function rowsFor(actions: readonly Row[], words: string): Row[] {
  const chosen = models.value.length < 2 ? [] : models.value;
  const all: Row[] = [
    { label: t("New conversation"), hint: "Ctrl+Shift+O", act: startNew },
    ...actions,
    ...chosen.map(({ id }) => ({ label: id, hint: t("model"), act: () => void chooseModel(id) })),
    ...Object.keys(prompts.value).map((name) => ({ label: name, hint: t("prompt"), act: () => insert(name) })),
    ...conversations.value.map((each) => ({ label: each.title, hint: t("conversation"), act: () => void open(each) })),
  ];
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter(({ label, hint }) => wanted.every((word) => `${label} ${hint}`.toLowerCase().includes(word))).slice(0, MOST);
}
