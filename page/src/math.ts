/** Formulas in LaTeX, which Markdown would damage: they are kept as they are written. */

import type { TokenizerAndRendererExtension } from "marked";

const BLOCK = /^(?:\$\$([\s\S]{1,2000}?)\$\$|\\\[([\s\S]{1,2000}?)\\\])(?:\n|$)/;
const INLINE = /^(?:\$\$([^$]{1,2000}?)\$\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]|\$(?!\s)((?:\\.|[^$\\\n]){1,2000}?)(?<!\s)\$(?!\d))/;

const formula = (level: "block" | "inline", rule: RegExp, start: (source: string) => number | undefined): TokenizerAndRendererExtension => ({
  name: level === "block" ? "mathBlock" : "math",
  level,
  start,
  tokenizer(source) {
    const found = rule.exec(source);
    const text = found?.slice(1).find((part) => part !== undefined)?.trim();
    return found && text ? { type: level === "block" ? "mathBlock" : "math", raw: found[0], text } : undefined;
  },
});

/** Where a block begins in the middle of a text: not at each `$$`, since every one that ends a paragraph costs another look at the rest. */
const BLOCK_LATER = new RegExp(`(?<=\\n)${BLOCK.source.slice(1)}`);
const OPENING = /\n(?:\$\$|\\\[)/;
const BLANK = /\n[ \t]*\n/;
const LONGEST = 2010; // characters of a block

/** Where a block begins in the rest of a paragraph. Each paragraph asks for all that follows, so only a part of it is searched. */
function later(source: string): number | undefined {
  const end = BLANK.exec(source)?.index ?? source.length;
  return OPENING.test(source.slice(0, end)) ? BLOCK_LATER.exec(source.slice(0, end + LONGEST))?.index : undefined;
}

export const formulas = [
  formula("block", BLOCK, later),
  formula("inline", INLINE, (source) => /\$|\\[([]/.exec(source)?.index),
];
