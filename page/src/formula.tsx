/** A formula, as MathML. The library is loaded with the first one; until then, and where it fails, LaTeX is shown. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

type Render = (text: string, into: HTMLElement, options: object) => void;

let render: Render | null = null;
let loading: Promise<unknown> | null = null;

const OPTIONS = { throwOnError: true, maxSize: [20, 40], maxExpand: 500 }; // em; what is bounded can fill no page

export function Formula({ text, display = false }: { text: string; display?: boolean }) {
  const place = useRef<HTMLSpanElement>(null);
  const [isPlain, setPlain] = useState(!render);
  useLayoutEffect(() => {
    if (isPlain && !render) {
      loading ??= import("temml/dist/temml.min.js").then(({ default: temml }) => (render = temml.render));
      void loading.then(() => setPlain(false), () => undefined);
      return;
    }
    try {
      if (!isPlain) render!(text, place.current!, { ...OPTIONS, displayMode: display });
    } catch {
      setPlain(true);
    }
  }, [text, isPlain]);
  return isPlain ? <code class="math">{text}</code> : <span ref={place} class="formula" data-latex={text} />;
}
