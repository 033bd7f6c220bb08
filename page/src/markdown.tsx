/**
 * Markdown to elements. Nothing of what a model writes is ever HTML: tags are shown as text, links go to the web only,
 * and images, which would tell another server what is read here, are links.
 */

import type { Token, Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { memo } from "./memo";

import { CodeBlock } from "./code";
import { Formula } from "./formula";
import { t } from "./language";
import { tokensOf } from "./lexer";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const tokens = tokensOf(text);
  if (!tokens) return <div class="markdown plain" dir="auto">{text}</div>;
  const top = Math.min(...tokens.map((token) => (token.type === "heading" ? token.depth : 6)));
  return (
    <div class="markdown">
      {tokens.map((token, index) => (
        <Block key={index} raw={token.raw} token={token} top={top} />
      ))}
    </div>
  );
});

/** A block has the direction of its own text, and is drawn again when its text changed: while an answer is written that is the last one. */
const Block = memo(
  ({ token, top }: { raw: string; token: Token; top: number }) =>
    token.type === "heading" ? heading(token as Tokens.Heading, top) : <>{block(token, 0)}</>,
  (a, b) => a.raw === b.raw && a.token.type === b.token.type && a.top === b.top,
);

function blocks(tokens: readonly Token[] = []): ComponentChildren {
  return tokens.map(block);
}

function block(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "heading":
      return heading(token as Tokens.Heading, 1);
    case "paragraph":
      return <p key={key} dir="auto">{inline(token.tokens)}</p>;
    case "code":
      return <CodeBlock key={key} code={token.text} language={(token.lang ?? "").split(/\s/)[0]} />;
    case "blockquote":
      return <blockquote key={key} dir="auto">{blocks(token.tokens)}</blockquote>;
    case "list":
      return list(token as Tokens.List, key);
    case "table":
      return table(token as Tokens.Table, key);
    case "mathBlock":
      return <p key={key}><Formula text={token.text} display /></p>;
    case "hr":
      return <hr key={key} />;
    case "space":
    case "def":
      return null;
    case "html":
      return <p key={key} dir="auto">{token.raw.trim()}</p>;
    default:
      return one(token, key);
  }
}

/** Headings of an answer are below that of its message, which is an h2; the highest of them, `top`, is an h3. */
function heading(token: Tokens.Heading, top: number): ComponentChildren {
  const Tag = `h${Math.min(token.depth - top + 3, 6)}` as "h3";
  return <Tag class={`depth-${token.depth}`} dir="auto">{inline(token.tokens)}</Tag>;
}

function list(token: Tokens.List, key: number): ComponentChildren {
  const items = token.items.map((item, index) => (
    <li key={index} class={item.task ? "task" : undefined}>
      {item.task && <input type="checkbox" checked={item.checked} disabled aria-label={item.checked ? t("done") : t("to do")} />}
      {blocks(item.tokens.filter((each) => each.type !== "checkbox"))}
    </li>
  ));
  if (!token.ordered) return <ul key={key} dir="auto">{items}</ul>;
  return (
    <ol key={key} dir="auto" start={token.start === "" ? 1 : token.start}>
      {items}
    </ol>
  );
}

function table(token: Tokens.Table, key: number): ComponentChildren {
  const cells = (Tag: "th" | "td", row: readonly Tokens.TableCell[]) =>
    row.map((cell, index) => (
      <Tag key={index} class={cell.align ? `align-${cell.align}` : undefined}>
        {inline(cell.tokens)}
      </Tag>
    ));
  return (
    <div key={key} class="table" dir="auto" tabIndex={0} role="region" aria-label={t("Table")}>
      <table>
        <thead>
          <tr>{cells("th", token.header)}</tr>
        </thead>
        <tbody>
          {token.rows.map((row, index) => (
            <tr key={index}>{cells("td", row)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: readonly Token[] = []): ComponentChildren {
  return tokens.map(one);
}

function one(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inline(token.tokens)}</strong>;
    case "em":
      return <em key={key}>{inline(token.tokens)}</em>;
    case "del":
      return <del key={key}>{inline(token.tokens)}</del>;
    case "codespan":
      return <code key={key}>{token.text}</code>;
    case "math":
      return <Formula key={key} text={token.text} />;
    case "br":
      return <br key={key} />;
    case "link":
      return <Link key={key} href={token.href} children={inline(token.tokens)} />;
    case "image":
      return <Link key={key} href={token.href} children={token.text || token.href} />;
    case "html":
      return /^<br\s*\/?>$/i.test(token.raw) ? <br key={key} /> : token.raw;
    case "escape":
      return token.text;
    default:
      return "tokens" in token ? inline(token.tokens) : entities(token.raw);
  }
}

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

const NAMED: Record<string, string> = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–", copy: "©",
  times: "×", deg: "°", rarr: "→", larr: "←", bull: "•", middot: "·", le: "≤", ge: "≥", ne: "≠", euro: "€",
};

function entities(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,8}));/gi, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(NAMED, name) ? NAMED[name]! : whole;
    const point = decimal ? Number(decimal) : parseInt(hex, 16);
    return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : whole;
  });
}
