/** Formulas in LaTeX, which Markdown would damage: they are kept as they are written. */

import type { MarkedOptions, TokenizerExtensionFunction } from "marked";

const BLOCK = /^(?:\$\$([\s\S]{1,2000}?)\$\$|\\\[([\s\S]{1,2000}?)\\\])(?:\n|$)/;
const INLINE = /^(?:\$\$([^$]{1,2000}?)\$\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]|\$(?!\s)((?:\\.|[^$\\\n]){1,2000}?)(?<!\s)\$(?!\d))/;

/** Extensions as `Marked.use` keeps them: marked's class for that, and all that makes HTML, are not in the bundle. */
type Extensions = NonNullable<MarkedOptions["extensions"]>;

const formula = (type: "math" | "mathBlock", rule: RegExp): TokenizerExtensionFunction =>
  (source) => {
    const found = rule.exec(source);
    const text = found?.slice(1).find((part) => part !== undefined)?.trim();
    return found && text ? { type, raw: found[0], text } : undefined;
  };

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

export const formulas: Extensions = {
  renderers: {},
  childTokens: {},
  block: [formula("mathBlock", BLOCK)],
  startBlock: [later],
  inline: [formula("math", INLINE)],
  startInline: [(source) => /\$|\\[([]/.exec(source)?.index],
};
