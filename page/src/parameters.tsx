/** The parameters of a conversation: what the model is told, how its words are chosen, its tools. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { IconButton } from "./buttons";
import { defaults, models, options, setOptions } from "./state";
import type { Options } from "./types";

interface Range {
  name: "temperature" | "top_p" | "top_k" | "min_p" | "repeat_penalty" | "max_tokens" | "seed";
  label: string;
  step: number;
  min: number;
  max?: number;
  unset: string; // what stands there where neither the page nor the model says anything
}

export const RANGES: readonly Range[] = [
  { name: "temperature", label: "Temperature", step: 0.1, min: 0, max: 5, unset: "0.8" },
  { name: "top_p", label: "Top p", step: 0.01, min: 0, max: 1, unset: "0.95" },
  { name: "top_k", label: "Top k", step: 1, min: 0, unset: "40" },
  { name: "min_p", label: "Min p", step: 0.01, min: 0, max: 1, unset: "0.05" },
  { name: "repeat_penalty", label: "Repeat penalty", step: 0.05, min: 0, max: 5, unset: "1" },
  { name: "max_tokens", label: "Most tokens", step: 1, min: 1, unset: "no limit" },
  { name: "seed", label: "Seed", step: 1, min: 0, unset: "random" },
];

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
    <dialog ref={dialog} class="parameters" aria-label="Parameters" onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      {isOpen && (
        <div class="sheet">
          <header>
            <h2>Parameters</h2>
            <IconButton icon="close" label="Close" onClick={onClose} />
          </header>
          <Fields key={resets} set={set} />
          <div class="row end">
            <button type="button" onClick={reset}>Reset all</button>
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
        <span>System message</span>
        <textarea rows={4} defaultValue={chosen.system ?? ""} placeholder="You are brief and exact." onInput={(event) => set({ system: event.currentTarget.value })} />
      </label>
      <fieldset class="grid">
        <legend>Choosing words</legend>
        {RANGES.map((range) => (
          <NumberField key={range.name} range={range} set={set} />
        ))}
        <label class="field">
          <span>Reasoning</span>
          <select value={chosen.reasoning ?? ""} onChange={(event) => set({ reasoning: (event.currentTarget.value || undefined) as Options["reasoning"] })}>
            <option value="">default</option>
            <option value="on">on</option>
            <option value="off">off</option>
          </select>
        </label>
      </fieldset>
      <JsonField label="Tools" value={chosen.tools} placeholder='[{"type": "function", "function": {"name": …}}]' isRight={Array.isArray} wrong="a list of tools" set={(tools) => set({ tools })} />
      <JsonField label="JSON schema of the answer" value={chosen.schema} placeholder='{"type": "object", "properties": …}' isRight={isObject} wrong="an object" set={(schema) => set({ schema })} />
      {n_ctx && <p class="note">A conversation has room for {n_ctx.toLocaleString("en")} tokens.</p>}
    </>
  );
}

function NumberField({ range, set }: { range: Range; set: (change: Partial<Options>) => void }) {
  const { name, label, step, min, max, unset } = range;
  const known = defaults.value[name];
  const [problem, setProblem] = useState("");
  const onInput = (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    setProblem(input.checkValidity() ? "" : `Expected ${max === undefined ? `${min} or more` : `${min} to ${max}`}`);
    if (input.checkValidity()) set({ [name]: input.value === "" ? undefined : input.valueAsNumber });
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input type="number" step={step} min={min} max={max} defaultValue={options.value[name]?.toString() ?? ""} placeholder={typeof known === "number" && known >= 0 ? String(known) : unset} onInput={onInput} />
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
    return isRight(JSON.parse(text)) ? "" : `Expected ${wrong}`;
  } catch (error) {
    return (error as Error).message;
  }
}

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);

/** Without what is not set. */
function without(chosen: Options): Options {
  return Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== undefined && value !== "")) as Options;
}
