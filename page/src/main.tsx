/** The page: the list of conversations, the open one, and where to write. */

import { effect, useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";

import { resume, running, stop } from "./answer";
import { isLost, LOST } from "./api";
import { IconButton } from "./buttons";
import { Composer } from "./composer";
import { exportConversation } from "./export";
import { KeyQuestion } from "./key";
import { Parameters } from "./parameters";
import { Sidebar } from "./sidebar";
import { announcement, current, notice, options, start, startNew } from "./state";
import { Thread } from "./thread";
import "./style/main.css";

const wide = matchMedia("(min-width: 50rem)");

function Page() {
  const shows = useSignal(wide.matches && localStorage.getItem("pumice.sidebar") !== "closed");
  const parameters = useSignal(false);
  const toggle = () => {
    shows.value = !shows.value;
    if (wide.matches) localStorage.setItem("pumice.sidebar", shows.value ? "open" : "closed");
  };
  const onChosen = () => {
    if (!wide.matches) shows.value = false;
  };
  useEffect(() => {
    const onChange = () => (shows.value = wide.matches);
    wide.addEventListener("change", onChange);
    return () => wide.removeEventListener("change", onChange);
  }, []);
  const changed = Object.keys(options.value).filter((name) => name !== "model").length;
  return (
    <div class={shows.value ? "page with-sidebar" : "page"}>
      <aside inert={!shows.value}><Sidebar onChosen={onChosen} /></aside>
      {shows.value && <div class="backdrop" onClick={toggle} />}
      <main>
        <header>
          <IconButton icon="menu" label="Conversations" pressed={shows.value} onClick={toggle} />
          <h1>{current.value?.title ?? "New conversation"}</h1>
          {current.value && <IconButton icon="download" label="Save as a file" onClick={exportConversation} />}
          <span class={changed ? "changed" : undefined}>
            <IconButton icon="sliders" label="Parameters" onClick={() => (parameters.value = true)} />
          </span>
        </header>
        {isLost.value ? <p class="notice" role="alert">{LOST}</p> : notice.value && <Notice />}
        <Thread />
        <Composer />
      </main>
      <Parameters isOpen={parameters.value} onClose={() => (parameters.value = false)} />
      <KeyQuestion />
      <div class="unseen" role="status">{announcement.value}</div>
    </div>
  );
}

function Notice() {
  return (
    <div class="notice" role="alert">
      <span>{notice.value}</span>
      <IconButton icon="close" label="Close" onClick={() => (notice.value = "")} />
    </div>
  );
}

function onKey(event: KeyboardEvent): void {
  const id = current.value?.id;
  if (event.key === "Escape" && id && running.value.has(id) && !document.querySelector("dialog[open]")) stop(id);
  if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    startNew();
  }
}

addEventListener("keydown", onKey);
effect(() => void (document.title = current.value ? `${current.value.title} · Pumice` : "Pumice"));
render(<Page />, document.getElementById("root")!);
void start().then(resume);
