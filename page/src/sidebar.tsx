/** The list of conversations. */

import { useState } from "preact/hooks";

import { running, stop } from "./answer";
import { IconButton, isFirst } from "./buttons";
import { Icon, Mark } from "./icons";
import { focusMessage } from "./focus";
import { t } from "./language";
import { LanguageChoice } from "./language-choice";
import { found, query, search } from "./search";
import { announcement, attempt, conversations, current, keptBy, move, open, remove, rename, startNew } from "./state";
import { ThemeChoice } from "./theme-choice";
import { exportAll, importFile } from "./transfer";
import type { Conversation } from "./types";

const DAY = 86_400_000; // milliseconds

export function Sidebar({ onChosen }: { onChosen: () => void }) {
  const go = (work: () => void) => {
    work();
    onChosen();
  };
  const shown = conversations.value.filter(({ id }) => found.value?.has(id) ?? true);
  return (
    <>
      <div class="brand"><Mark /><span>Pumice</span></div>
      <button type="button" class="new" onClick={() => go(startNew)} title={`${t("New conversation")} (Ctrl+Shift+O)`}>
        <Icon name="plus" /> {t("New conversation")}
      </button>
      <input id="search" type="search" aria-label={t("Search conversations")} placeholder={t("Search")} value={query.value} onInput={(event) => void attempt(() => search(event.currentTarget.value))} />
      <nav aria-label={t("Conversations")}>
        {found.value && !shown.length && <p class="note">{t("No conversation matches.")}</p>}
        {folders(shown).map(([name, group]) => (
          <details key={`folder ${name}`} class="folder" open={!!found.value || group.some(({ id }) => id === current.value?.id)}>
            <summary><Icon name="folder" /><span dir="auto">{name}</span></summary>
            <Items group={group} go={go} />
          </details>
        ))}
        {grouped(shown.filter(({ folder }) => !folder)).map(([name, group]) => (
          <section key={name}>
            <h2>{name}</h2>
            <Items group={group} go={go} />
          </section>
        ))}
      </nav>
      <datalist id="folders">{folders(conversations.value).map(([name]) => <option key={name} value={name} />)}</datalist>
      <footer>
        <ThemeChoice />
        <LanguageChoice />
        <p>{keptBy.value === "server" ? t("Kept by the server") : t("Kept in this browser")}</p>
        <span class="transfer">
          <IconButton icon="download" label={t("Save all conversations")} disabled={!conversations.value.length} onClick={() => void attempt(exportAll)} />
          <IconButton icon="upload" label={t("Read conversations from a file")} onClick={pickImport} />
          <input id="import" type="file" accept="application/json,.json" hidden aria-label={t("File of conversations")} onChange={(event) => void read(event.currentTarget)} />
        </span>
      </footer>
    </>
  );
}

function Items({ group, go }: { group: readonly Conversation[]; go: (work: () => void) => void }) {
  return (
    <ul>
      {group.map((each) => (
        <Item key={each.id} conversation={each} onOpen={() => go(() => void open(each))} />
      ))}
    </ul>
  );
}

export function pickImport(): void {
  document.getElementById("import")?.click();
}

async function read(picker: HTMLInputElement): Promise<void> {
  await attempt(async () => {
    const n = await importFile(picker.files![0]!);
    announcement.value = n === 1 ? t("1 conversation was read") : t("{n} conversations were read", { n });
  });
  picker.value = "";
}

function Item({ conversation, onOpen }: { conversation: Conversation; onOpen: () => void }) {
  const [state, setState] = useState<"" | "renaming" | "moving" | "removing">("");
  const isOpen = current.value?.id === conversation.id;
  const { title, folder = "" } = conversation;
  const close = () => setState("");
  if (state === "renaming") return <li><Line label={t("Title")} value={title} onDone={close} set={(text) => text && void rename(conversation, text)} /></li>;
  if (state === "moving") return <li><Line label={t("Folder")} value={folder} list="folders" onDone={close} set={(text) => void move(conversation, text)} /></li>;
  if (state === "removing") {
    return (
      <li class="asking" role="group" aria-label={t("Delete {title}?", { title })}>
        <span>{t("Delete it?")}</span>
        <button type="button" ref={(button) => button?.focus()} onClick={() => setState("")}>{t("Keep")}</button>
        <button type="button" class="danger" onClick={(event) => isFirst(event) && (stop(conversation.id), void remove(conversation))}>{t("Delete")}</button>
      </li>
    );
  }
  return (
    <li class={isOpen ? "open" : undefined}>
      <button type="button" class="title" dir="auto" aria-current={isOpen ? "page" : undefined} onClick={onOpen} onDblClick={() => setState("renaming")}>
        {running.value.has(conversation.id) && <i class="dot" title={t("An answer is being written")} />}
        {conversation.title}
      </button>
      <span class="item-actions">
        <IconButton icon="edit" label={t("Rename {title}", { title })} onClick={() => setState("renaming")} />
        <IconButton icon="folder" label={t("Move {title} to a folder", { title })} onClick={() => setState("moving")} />
        <IconButton icon="trash" label={t("Delete {title}", { title })} onClick={() => setState("removing")} />
      </span>
    </li>
  );
}

interface LineProperties {
  label: string;
  value: string;
  list?: string;
  onDone: () => void;
  set: (text: string) => void;
}

/** A text of a conversation while it is changed. */
function Line({ label, value, list, onDone, set }: LineProperties) {
  const finish = (text: string) => {
    onDone();
    if (text.trim() !== value) set(text.trim());
  };
  return (
    <input
      aria-label={label}
      placeholder={label}
      dir="auto"
      defaultValue={value}
      list={list}
      maxLength={120}
      ref={(input) => input?.focus()}
      onBlur={(event) => finish(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === "Escape") event.currentTarget.value = value; // which a blur takes over, that of a removal, too
        else if (event.key !== "Enter") return;
        event.currentTarget.blur();
        focusMessage();
      }}
    />
  );
}

/** Folders by name, with their conversations. */
function folders(all: readonly Conversation[]): [string, Conversation[]][] {
  const byName = new Map<string, Conversation[]>();
  for (const each of all) if (each.folder) byName.set(each.folder, [...(byName.get(each.folder) ?? []), each]);
  return [...byName].sort(([a], [b]) => a.localeCompare(b));
}

function grouped(all: readonly Conversation[]): [string, Conversation[]][] {
  const today = new Date().setHours(0, 0, 0, 0);
  const limits: [string, number][] = [[t("Today"), today], [t("Yesterday"), today - DAY], [t("This week"), today - 6 * DAY], [t("Earlier"), 0]];
  const groups = limits.map(([name]): [string, Conversation[]] => [name, []]);
  for (const each of all) groups[limits.findIndex(([, least]) => each.updated >= least)]![1].push(each);
  return groups.filter(([, group]) => group.length > 0);
}
