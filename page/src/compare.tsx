/** Two versions of a message side by side, each with what follows it in its newest branch. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";

import { IconButton } from "./buttons";
import { showDialog } from "./dialogs";
import { t } from "./language";
import { Markdown } from "./markdown";
import { messages } from "./state";
import { branch, newestLeaf, versions } from "./tree";
import type { Message } from "./types";

interface Properties {
  versions: readonly Message[];
  index: number; // of the version that the conversation shows
  other?: number; // of the one beside it
  onClose: () => void;
}

/** The answer that stands beside the newest version of it. */
export const beside = signal<Message | null>(null);

export function Beside() {
  if (!beside.value) return null;
  const { id } = beside.value;
  const all = versions(messages.value, beside.value);
  if (all.length < 2) return null;
  return <Compare key={all.length} versions={all} index={all.findIndex((each) => each.id === id)} other={all.length - 1} onClose={() => (beside.value = null)} />;
}

export function Compare({ versions, index, other = index ? index - 1 : 1, onClose }: Properties) {
  const [chosen, setChosen] = useState([index, other]);
  const choose = (side: number, version: number) => setChosen(chosen.map((each, other) => (other === side ? version : each)));
  return (
    <dialog class="compare" ref={showDialog} aria-label={t("Compare versions")} onClose={onClose}>
      <header>
        <h2>{t("Compare versions")}</h2>
        <IconButton icon="close" label={t("Close")} onClick={onClose} />
      </header>
      <div class="sides">
        {chosen.map((version, side) => (
          <section key={side}>
            <select aria-label={t("Version {n}", { n: side + 1 })} value={version} onChange={(event) => choose(side, Number(event.currentTarget.value))}>
              {versions.map(({ figures }, each) => (
                <option key={each} value={each}>{`${each + 1}/${versions.length} ${figures?.model ?? ""}`}</option>
              ))}
            </select>
            {from(versions[version]!).map(({ id, role, content }) => (
              <div key={id} class={role}>
                <Markdown text={content} />
              </div>
            ))}
          </section>
        ))}
      </div>
    </dialog>
  );
}

function from(message: Message): Message[] {
  const all = branch(messages.value, newestLeaf(messages.value, message.id));
  return all.slice(all.findIndex(({ id }) => id === message.id));
}
