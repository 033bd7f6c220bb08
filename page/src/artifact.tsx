/**
 * HTML and SVG of an answer, run in a frame that has an origin of its own: it reaches neither this page nor any server,
 * by the policy that the server sends with page/frame.html.
 */

import { useRef } from "preact/hooks";

import { t } from "./language";

const SHOWN = new Set(["html", "svg", "xhtml"]);

/** Whether a block of code can be shown. */
export function isShowable(code: string, language = ""): boolean {
  const name = language.toLowerCase();
  return SHOWN.has(name) || (name === "xml" && /<svg[\s>]/i.test(code));
}

export function Artifact({ code }: { code: string }) {
  const isGiven = useRef(false);
  const give = (frame: HTMLIFrameElement) => {
    if (isGiven.current) return; // it went elsewhere by itself
    isGiven.current = true;
    frame.contentWindow!.postMessage(code, "*"); // it has no origin that could be named
  };
  return <iframe class="artifact" title={t("Preview of the code")} src="page/frame.html" sandbox="allow-scripts" referrerpolicy="no-referrer" onLoad={(event) => give(event.currentTarget)} />;
}
