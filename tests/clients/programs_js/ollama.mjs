import { Ollama } from "ollama";
import { MESSAGES, MODEL, TOOL, URL, run } from "./common.mjs";

const client = new Ollama({ host: URL });
const base = { model: MODEL, messages: MESSAGES, options: { num_predict: 10 } };

await run({
  chat: async () => (await client.chat(base)).message.content,
  stream: async () => {
    let text = "";
    for await (const part of await client.chat({ ...base, stream: true })) text += part.message.content;
    return text;
  },
  tools: async () => (await client.chat({ ...base, tools: [TOOL] })).message.role,
  embeddings: async () => (await client.embed({ model: MODEL, input: ["a", "b"] })).embeddings[1].length,
});
