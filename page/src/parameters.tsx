/** The parameters of a conversation: what the model is told, how its words are chosen, its tools. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { IconButton } from "./buttons";
import { formatted, t } from "./language";
import { RANGES, type Range } from "./ranges";
import { decide, decided, decisionOf, serverTools } from "./server-tools";
import { defaults, isKeptForModel, keepForModel, model, models, options, setOptions } from "./state";
import type { Options } from "./types";

export function Parameters({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (isOpen) dialog.current?.showModal();
    else dialog.current?.close();
  }, [isOpen]);
  const [resets, setResets] = useState(0);
  const reset = () => {
    void setOptions(options.value.model ? { model: options.value.model } : {});
    setResets(resets + 1);
  };
  const set = (change: Partial<Options>) => void setOptions(without({ ...options.value, ...change }));
  return (
    <dialog ref={dialog} class="parameters" aria-label={t("Parameters")} onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      {isOpen && (
        <div class="sheet">
          <header>
            <h2>{t("Parameters")}</h2>
            <IconButton icon="close" label={t("Close")} onClick={onClose} />
          </header>
          <Fields key={resets} set={set} />
          <div class="row end">
            {models.value.length > 1 && model.value && (
              <label><input type="checkbox" checked={isKeptForModel()} onChange={(event) => keepForModel(event.currentTarget.checked)} /> {t("Keep for {model}", { model: model.value.id })}</label>
            )}
            <button type="button" onClick={reset}>{t("Reset all")}</button>
          </div>
        </div>
      )}
    </dialog>
  );
}

function Fields({ set }: { set: (change: Partial<Options>) => void }) {
  const chosen = options.value;
  const n_ctx = models.value.find(({ id }) => id === chosen.model)?.n_ctx ?? models.value[0]?.n_ctx;
  return (
    <>
      <label class="field">
        <span>{t("System message")}</span>
        <textarea rows={4} dir="auto" defaultValue={chosen.system ?? ""} placeholder={t("You are brief and exact.")} onInput={(event) => set({ system: event.currentTarget.value })} />
      </label>
      <fieldset class="grid">
        <legend>{t("Sampling")}</legend>
        {RANGES.map((range) => (
          <NumberField key={range.name} range={range} set={set} />
        ))}
        <label class="field">
          <span>{t("Reasoning")}</span>
          <select value={chosen.reasoning ?? ""} onChange={(event) => set({ reasoning: (event.currentTarget.value || undefined) as Options["reasoning"] })}>
            <option value="">{t("default")}</option>
            <option value="on">{t("on")}</option>
            <option value="off">{t("off")}</option>
          </select>
        </label>
      </fieldset>
      <ServerTools set={set} />
      <JsonField label={t("Tools")} value={chosen.tools} placeholder='[{"type": "function", "function": {"name": …}}]' isRight={Array.isArray} wrong={t("a list of tools")} set={(tools) => set({ tools })} />
      <JsonField label={t("JSON schema of the answer")} value={chosen.schema} placeholder='{"type": "object", "properties": …}' isRight={isObject} wrong={t("an object")} set={(schema) => set({ schema })} />
      {n_ctx && <p class="note">{t("A conversation has room for {n} tokens.", { n: formatted(n_ctx) })}</p>}
    </>
  );
}

/** Tools that the server runs: which of them the conversation uses, and which are asked for. */
function ServerTools({ set }: { set: (change: Partial<Options>) => void }) {
  const chosen = options.value.serverTools ?? [];
  if (!serverTools.value.length) return null;
  const toggle = (name: string, uses: boolean) => set({ serverTools: [...chosen.filter((each) => each !== name), ...(uses ? [name] : [])] });
  return (
    <fieldset class="server-tools">
      <legend>{t("Tools of the server")}</legend>
      {serverTools.value.map(({ tool, display_name }) => (
        <div key={tool} class="row">
          <label><input type="checkbox" checked={chosen.includes(tool)} onChange={(event) => toggle(tool, event.currentTarget.checked)} /> {display_name}</label>
          {decisionOf(tool) !== undefined && <button type="button" title={t("Ask again")} onClick={() => decide(tool, undefined)}>{decided(tool)}</button>}
        </div>
      ))}
    </fieldset>
  );
}

function NumberField({ range, set }: { range: Range; set: (change: Partial<Options>) => void }) {
  const { name, label, step, min, max, unset } = range;
  const known = defaults.value[name];
  const [problem, setProblem] = useState("");
  const onInput = (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    setProblem(input.checkValidity() ? "" : t("Expected {what}", { what: max === undefined ? t("{min} or more", { min }) : t("{min} to {max}", { min, max }) }));
    if (input.checkValidity()) set({ [name]: input.value === "" ? undefined : input.valueAsNumber });
  };
  return (
    <label class="field">
      <span>{t(label)}</span>
      <input type="number" step={step} min={min} max={max} defaultValue={options.value[name]?.toString() ?? ""} placeholder={typeof known === "number" && known >= 0 ? String(known) : t(unset)} onInput={onInput} />
      {problem && <em class="problem" role="alert">{problem}</em>}
    </label>
  );
}

interface JsonProperties {
  label: string;
  value: string | undefined;
  placeholder: string;
  isRight: (value: unknown) => boolean;
  wrong: string;
  set: (text: string) => void;
}

/** JSON that is taken over only where it is right. */
function JsonField({ label, value, placeholder, isRight, wrong, set }: JsonProperties) {
  const [problem, setProblem] = useState("");
  const onInput = (event: Event) => {
    const text = (event.currentTarget as HTMLTextAreaElement).value.trim();
    const found = text ? problemOf(text, isRight, wrong) : "";
    setProblem(found);
    if (!found) set(text);
  };
  return (
    <label class="field">
      <span>{label}</span>
      <textarea class="mono" rows={3} spellcheck={false} defaultValue={value ?? ""} placeholder={placeholder} aria-invalid={!!problem} onInput={onInput} />
      {problem && <em class="problem" role="alert">{problem}</em>}
    </label>
  );
}

function problemOf(text: string, isRight: (value: unknown) => boolean, wrong: string): string {
  try {
    return isRight(JSON.parse(text)) ? "" : t("Expected {what}", { what: wrong });
  } catch (error) {
    return (error as Error).message;
  }
}

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);

/** Without what is not set. */
function without(chosen: Options): Options {
  return Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== undefined && value !== "" && !(Array.isArray(value) && !value.length))) as Options;
}
