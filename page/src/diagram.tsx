/** Flowcharts in Mermaid's language, drawn as SVG when asked. Other diagrams, and what is not understood, stay text. */

const NODE = /\s*(\w+)(?:(\[[([/]?|\(\[|\({1,3}|\{{1,2}|>)\s*(?:"([^"]*)"|(.*?))\s*(?:\]\)|[)/]\]|\]{1,2}|\){1,3}|\}{1,2}))?(?::::\w+)?/y;
const LINK = /\s*<?(?:(--|==|-\.)\s*([^-=.>|\s][^|>]*?)\s*)?(-{2,}|={2,}|-?\.+-)([>xo]?)(?:\s*\|([^|]*)\|)?/y;
const IGNORED = /^(?:style|classDef|class|click|linkStyle|subgraph|end|direction)\b/;
const MOST = 100; // nodes, and links
const MOST_CHARACTERS = 200; // of a line

interface Node {
  text: string[];
  shape: string; // its opening bracket
  row: number;
  at: number; // its place in the row
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Link {
  from: Node;
  to: Node;
  text: string;
  style: string; // the first characters of its line
  ends: boolean;
}

interface Chart {
  nodes: Node[];
  links: Link[];
  isWide: boolean;
  width: number;
  height: number;
}

/** The flowchart of a block of code; null where there is none that can be drawn. */
export function chartOf(code: string, language = ""): Chart | null {
  if (language.toLowerCase() !== "mermaid" || code.length > MOST * MOST_CHARACTERS) return null;
  const [first, ...lines] = code.split(/[\n;]/).map((line) => line.replace(/%%.*/, "").trim()).filter(Boolean);
  const kind = /^(?:graph|flowchart)\s+(TB|TD|BT|LR|RL)$/.exec(first ?? "");
  if (!kind) return null;
  const known = new Map<string, Node>();
  const links: Link[] = [];
  if (!lines.every((line) => line.length <= MOST_CHARACTERS && known.size <= MOST && links.length <= MOST && (IGNORED.test(line) || read(line, known, links)))) return null;
  const nodes = [...known.values()];
  if (!nodes.length) return null;
  const isBack = /BT|RL/.test(kind[1]!);
  const chart = { nodes, links, isWide: /LR|RL/.test(kind[1]!), width: 0, height: 0 };
  place(chart, isBack);
  return chart;
}

/** Read one line, such as `A & B -->|yes| C[Text]`. False if it is none. */
function read(line: string, known: Map<string, Node>, links: Link[]): boolean {
  let position = 0;
  const next = (pattern: RegExp) => {
    pattern.lastIndex = position;
    const match = pattern.exec(line);
    if (match) position = pattern.lastIndex;
    return match;
  };
  const group = () => {
    const nodes: Node[] = [];
    do {
      const match = next(NODE);
      if (!match) return [];
      const node = known.get(match[1]!) ?? { text: [match[1]!], shape: "[", row: 0, at: 0, x: 0, y: 0, width: 0, height: 0 };
      if (match[2]) Object.assign(node, { text: (match[3] ?? match[4]!).split(/<br\s*\/?>|\\n/), shape: match[2] });
      known.set(match[1]!, node);
      nodes.push(node);
    } while (next(/\s*&/y));
    return nodes;
  };
  let from = group();
  while (from.length && position < line.length) {
    const link = next(LINK);
    const to = link ? group() : [];
    if (!link || !to.length) return false;
    for (const a of from) for (const b of to) links.push({ from: a, to: b, text: (link[2] ?? link[5] ?? "").replace(/^"|"$/g, ""), style: link[3]!, ends: !!link[4] });
    from = to;
  }
  return from.length > 0;
}

/** Give each node its row, behind those that lead to it, and its place: near the middle of these. */
function place(chart: Chart, isBack: boolean): void {
  const { nodes, links, isWide } = chart;
  const seen = new Map<Node, boolean>(); // true while it is on the way: what leads back to it is passed over
  const forth: Link[] = [];
  const visit = (node: Node) => {
    seen.set(node, true);
    for (const link of links) {
      if (link.from !== node || seen.get(link.to)) continue;
      forth.push(link);
      if (!seen.has(link.to)) visit(link.to);
    }
    seen.set(node, false);
  };
  const starts = nodes.filter((node) => !links.some((link) => link.to === node));
  for (const node of [...starts, ...nodes]) if (!seen.has(node)) visit(node);
  for (const _ of nodes) for (const { from, to } of forth) to.row = Math.max(to.row, from.row + 1);
  const rows: Node[][] = [];
  for (const node of nodes) (rows[node.row] ??= []).push(node);
  for (const row of rows) {
    const middle = new Map(row.map((node) => [node, mean(links.filter((link) => link.to === node && link.from.row < node.row).map((link) => link.from.at))]));
    row.sort((a, b) => middle.get(a)! - middle.get(b)!).forEach((node, index) => (node.at = index - row.length / 2));
  }
  for (const node of nodes) {
    node.width = 28 + 8 * Math.max(...node.text.map((line) => line.length)) * (node.shape[0] === "{" ? 1.4 : 1);
    node.height = 18 + 18 * node.text.length * (node.shape[0] === "{" ? 1.7 : 1);
  }
  const across = (node: Node) => (isWide ? node.height : node.width) + 32;
  const along = (node: Node) => (isWide ? node.width : node.height);
  const sizes = rows.map((row) => row.reduce((sum, node) => sum + across(node), 0));
  const most = Math.max(...sizes);
  let start = 8;
  rows.forEach((row, index) => {
    const size = Math.max(...row.map(along));
    let at = (most - sizes[index]!) / 2;
    for (const node of row) {
      node.x = start + size / 2;
      node.y = at + across(node) / 2;
      at += across(node);
    }
    start += size + (isWide ? 90 : 52);
  });
  const end = start - (isWide ? 82 : 44);
  for (const node of nodes) {
    if (isBack) node.x = end - node.x;
    if (!isWide) [node.x, node.y] = [node.y, node.x];
  }
  [chart.width, chart.height] = isWide ? [end, most] : [most, end];
}

function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
}

export function Diagram({ chart }: { chart: Chart }) {
  return (
    <div class="diagram" tabIndex={0}>
      <svg width={chart.width} height={chart.height} aria-hidden="true">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
            <path d="M0 0 8 4 0 8z" />
          </marker>
        </defs>
        {chart.links.map((link, index) => {
          const leadsBack = link.to.row <= link.from.row; // such a link goes around what is between
          const [x1, y1, x2, y2] = ends(link, chart.isWide !== leadsBack, leadsBack ? 1 : -1);
          const [x, y] = leadsBack ? [Math.max(x1, x2) + 70, Math.max(y1, y2) + 70] : [(x1 + x2) / 2, (y1 + y2) / 2];
          const bend = chart.isWide !== leadsBack ? `${x} ${y1} ${x} ${y2}` : `${x1} ${y} ${x2} ${y}`;
          return (
            <g key={index}>
              <path class="link" d={`M${x1} ${y1}C${bend} ${x2} ${y2}`} stroke-dasharray={link.style.includes(".") ? "4" : undefined} stroke-width={link.style[0] === "=" ? 2.5 : 1.2} marker-end={link.ends ? "url(#arrow)" : undefined} />
              <text class="over" x={(x1 + x2) / 2} y={(y1 + y2) / 2}>{link.text}</text>
            </g>
          );
        })}
        {chart.nodes.map((node, index) => (
          <g key={index}>
            {node.shape[0] === "{" ? (
              <path d={`M${node.x - node.width / 2} ${node.y}l${node.width / 2}-${node.height / 2} ${node.width / 2} ${node.height / 2}-${node.width / 2} ${node.height / 2}z`} />
            ) : (
              <rect x={node.x - node.width / 2} y={node.y - node.height / 2} width={node.width} height={node.height} rx={node.shape[0] === "(" ? node.height / 2 : 4} />
            )}
            {node.text.map((line, number) => (
              <text key={number} x={node.x} y={node.y + 18 * (number - (node.text.length - 1) / 2)}>{line}</text>
            ))}
          </g>
        ))}
      </svg>
    </div>
  );
}

/** From the side of one node to the nearer side of the other (`other`: -1), or to its same side (1). */
function ends({ from, to }: Link, isWide: boolean, other: number): [number, number, number, number] {
  const sign = other > 0 || (isWide ? to.x >= from.x : to.y >= from.y) ? 0.5 : -0.5;
  return isWide
    ? [from.x + sign * from.width, from.y, to.x + other * sign * to.width, to.y]
    : [from.x, from.y + sign * from.height, to.x, to.y + other * sign * to.height];
}
