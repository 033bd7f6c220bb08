/** Asks for the API key of a server that needs one. */

import { useState } from "preact/hooks";

import { apiKey } from "./api";
import { showDialog } from "./dialogs";
import { t } from "./language";
import { needsKey, start } from "./state";

export function KeyQuestion() {
  const [key, setKey] = useState("");
  const wasWrong = !!apiKey.get();
  if (!needsKey.value) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    apiKey.set(key.trim());
    needsKey.value = false;
    void start();
  };
  return (
    <dialog class="key" ref={showDialog} aria-label={t("API key")} onCancel={(event) => event.preventDefault()}>
      <form onSubmit={submit}>
        <h2>{t("This server needs a key")}</h2>
        <p>{wasWrong ? t("The server does not know this key.") : t("It stays in this browser and is sent to this server only.")}</p>
        <input type="password" autocomplete="current-password" aria-label={t("API key")} value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        <div class="row end"><button class="primary" disabled={!key.trim()}>{t("Continue")}</button></div>
      </form>
    </dialog>
  );
}
