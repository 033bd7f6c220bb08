// Writes for each Markdown text of a JSON list on standard input its seconds of processor time and its tokens; null for one that is too much.
import { readFileSync } from "node:fs";

const { tokensOf } = await import(process.argv[2]);
const texts = JSON.parse(readFileSync(0, "utf8"));
tokensOf(texts[0]);
const made = texts.map((text) => {
  const began = process.cpuUsage();
  const tokens = tokensOf(text);
  const { user, system } = process.cpuUsage(began);
  return { seconds: (user + system) / 1e6, tokens };
});
console.log(JSON.stringify(made));
