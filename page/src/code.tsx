/** Blocks of code, coloured where the language is known. */

import { createLowlight } from "lowlight";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import lua from "highlight.js/lib/languages/lua";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import r from "highlight.js/lib/languages/r";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

import { Artifact, isShowable } from "./artifact";
import { CopyButton, IconButton } from "./buttons";
import { css } from "./css-language";
import { chartOf, Diagram } from "./diagram";
import { t } from "./language";
import { memo } from "./memo";

const MAX_COLOURED = 50_000; // characters of a block; longer ones are plain

const lowlight = createLowlight({
  bash, cpp, csharp, css, diff, dockerfile, go, ini, java, json, kotlin, lua, markdown, php,
  python, r, ruby, rust, shell, sql, swift, typescript, xml, yaml,
});

// The grammar of the other is enough for each of these, most of which are a part of it.
lowlight.registerAlias({ bash: ["make", "makefile", "mk"], cpp: ["c", "h"], typescript: ["javascript", "js", "jsx", "mjs", "cjs"] });

export const CodeBlock = memo(function CodeBlock({ code, language }: { code: string; language?: string }) {
  const [shows, setShows] = useState(false);
  const canShow = isShowable(code, language);
  const chart = chartOf(code, language);
  return (
    <figure class="code" dir="ltr">
      <figcaption>
        <span>{language || "text"}</span>
        {canShow && <IconButton icon="play" label={t("Preview")} pressed={shows} onClick={() => setShows(!shows)} />}
        {chart && <IconButton icon="play" label={t("Draw the diagram")} pressed={shows} onClick={() => setShows(!shows)} />}
        <CopyButton text={code} label={t("Copy code")} />
      </figcaption>
      {canShow && shows && <Artifact key={code} code={code} />}
      {chart && shows && <Diagram chart={chart} />}
      <pre tabIndex={0} role="region" aria-label={language ? t("Code, {language}", { language }) : t("Code")}>
        <code>{coloured(code, language)}</code>
      </pre>
    </figure>
  );
});

function coloured(code: string, language = ""): ComponentChildren {
  const name = language.toLowerCase();
  if (!lowlight.registered(name) || code.length > MAX_COLOURED) return code;
  return lowlight.highlight(name, code).children.map(element);
}

type Node = ReturnType<typeof lowlight.highlight>["children"][number];

function element(node: Node, key: number): ComponentChildren {
  if (node.type === "text") return node.value;
  if (node.type !== "element") return null;
  return (
    <span key={key} class={(node.properties.className as string[]).join(" ")}>
      {node.children.map((child, index) => element(child as Node, index))}
    </span>
  );
}
