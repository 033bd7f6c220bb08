/** Markdown to tokens, in time that the text's length bounds: marked alone takes a minute for some texts of 100,000 characters. */

import { getDefaults, Lexer, type Token } from "marked";

import { formulas } from "./math";

const MAX_LENGTH = 100_000; // characters
const MAX_LEVELS = 60; // of tokens inside others
const MAX_INSIDE = 8_000; // lines of lists and quotes, each counted once for each level that it is in
const MAX_LOOKS = 100_000_000; // sum of lines times characters of each paragraph in lists and quotes, whose every line looks for an underline
const MAX_BLOCKS = 5_000; // that are not inside others
const MAX_PAIRS = 1_000_000; // of signs of emphasis that are compared with each other
const MAX_SQUARES = 200_000_000; // sum of the squared lengths of paragraphs, since some of their patterns take quadratic time
const SIGNS = /[*_~]+/g;
const PARAGRAPHS = /\n(?=[ \t]*\n| *(?:[-*+]|\d+[.)]) )/;

class TooMuch extends Error {}

/** Ends with TooMuch before nested blocks exceed their bounds, and leaves paragraphs beyond theirs as they are written. */
class BoundedLexer extends Lexer {
  private level = 0;
  private inside = 0;
  private looks = 0;
  private pairs = 0;
  private squares = 0;

  override blockTokens(source: string, tokens: any = [], lastParagraphClipped?: boolean): any {
    if (this.level) {
      this.inside += lines(source);
      for (const paragraph of source.split(PARAGRAPHS)) this.looks += lines(paragraph) * paragraph.length;
    }
    if (this.inside > MAX_INSIDE || this.looks > MAX_LOOKS || this.level > MAX_LEVELS / 2) throw new TooMuch();
    this.level++;
    const made = super.blockTokens(source, tokens, lastParagraphClipped);
    this.level--;
    return made;
  }

  override inlineTokens(source: string, tokens: Token[] = []): Token[] {
    this.pairs += (source.match(SIGNS)?.length ?? 0) ** 2;
    this.squares += source.length ** 2;
    if (this.pairs <= MAX_PAIRS && this.squares <= MAX_SQUARES) return super.inlineTokens(source, tokens);
    tokens.push({ type: "text", raw: source, text: source });
    return tokens;
  }
}

function lines(text: string): number {
  return text.split("\n").length;
}

/** The tokens of a text; null for one that would stop the page, or end its stack. */
export function tokensOf(text: string): Token[] | null {
  if (text.length > MAX_LENGTH) return null;
  try {
    const tokens = new BoundedLexer({ ...getDefaults(), extensions: formulas }).lex(text);
    return tokens.length > MAX_BLOCKS || levels(tokens) > MAX_LEVELS ? null : tokens;
  } catch {
    return null;
  }
}

function levels(tokens: readonly Token[]): number {
  let level = 0;
  for (let inside: any[] = [...tokens]; inside.length; level++) inside = inside.flatMap(({ tokens, items }) => [...(tokens ?? []), ...(items ?? [])]);
  return level;
}
