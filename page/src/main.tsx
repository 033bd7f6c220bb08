/** The page: the list of conversations, the open one, and where to write. */

import { effect, useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";

import { resume, running, stop } from "./answer";
import { isLost, LOST } from "./api";
import { IconButton } from "./buttons";
import { Beside } from "./compare";
import { attach, Composer } from "./composer";
import { KeyQuestion } from "./key";
import { loadWords, t } from "./language";
import { Palette, togglePalette } from "./palette";
import { Parameters } from "./parameters";
import { isOpen as showsPrompts, Prompts } from "./prompts";
import { pickImport, Sidebar } from "./sidebar";
import { announcement, attempt, current, notice, options, start, startNew } from "./state";
import { Thread } from "./thread";
import { exportAll, exportConversation, exportMarkdown } from "./transfer";
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
  const actions = [
    { label: t("Parameters"), hint: t("command"), act: () => (parameters.value = true) },
    { label: t("Prompts"), hint: t("command"), act: () => (showsPrompts.value = true) },
    { label: t("Search conversations"), hint: t("command"), act: () => ((shows.value = true), setTimeout(() => document.getElementById("search")?.focus())) },
    { label: t("Show or hide conversations"), hint: t("command"), act: toggle },
    ...(current.value ? [{ label: t("Save this conversation as a file"), hint: t("command"), act: exportConversation },
      { label: t("Save this conversation as Markdown"), hint: t("command"), act: exportMarkdown }] : []),
    { label: t("Save all conversations as a file"), hint: t("command"), act: () => void attempt(exportAll) },
    { label: t("Read conversations from a file"), hint: t("command"), act: pickImport },
  ];
  const changed = Object.keys(options.value).filter((name) => name !== "model").length;
  return (
    <div class={shows.value ? "page with-sidebar" : "page"}>
      <aside inert={!shows.value}><Sidebar onChosen={onChosen} /></aside>
      {shows.value && <div class="backdrop" onClick={toggle} />}
      <main onDragOver={(event) => event.preventDefault()} onDrop={onDrop}>
        <header>
          <IconButton icon="menu" label={t("Conversations")} pressed={shows.value} onClick={toggle} />
          <h1 dir="auto">{current.value?.title ?? t("New conversation")}</h1>
          {current.value && <IconButton icon="download" label={t("Save as a file")} onClick={exportConversation} />}
          <span class={changed ? "changed" : undefined}>
            <IconButton icon="sliders" label={t("Parameters")} onClick={() => (parameters.value = true)} />
          </span>
        </header>
        {isLost.value ? <p class="notice" role="alert">{t(LOST)}</p> : notice.value && <Notice />}
        <Thread />
        <Composer />
      </main>
      <Parameters isOpen={parameters.value} onClose={() => (parameters.value = false)} />
      <Palette actions={actions} />
      <Prompts />
      <Beside />
      <KeyQuestion />
      <div class="unseen" role="status">{announcement.value}</div>
    </div>
  );
}

function onDrop(event: DragEvent): void {
  event.preventDefault();
  if (event.dataTransfer?.files.length) void attach(event.dataTransfer.files);
}

function Notice() {
  return (
    <div class="notice" role="alert">
      <span>{notice.value}</span>
      <IconButton icon="close" label={t("Close")} onClick={() => (notice.value = "")} />
    </div>
  );
}

function onKey(event: KeyboardEvent): void {
  const id = current.value?.id;
  if (event.key === "Escape" && id && running.value.has(id) && !document.querySelector("dialog[open]")) stop(id);
  if (event.key.toLowerCase() === "k" && !event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    togglePalette();
  }
  if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    startNew();
  }
}

addEventListener("keydown", onKey);
effect(() => void (document.title = current.value ? `${current.value.title} · Pumice` : "Pumice"));
await loadWords();
render(<Page />, document.getElementById("root")!);
void start().then(resume);
