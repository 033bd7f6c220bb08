import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama";
import { MODEL, TOOL, URL, run } from "./common.mjs";

const base = { model: MODEL, baseUrl: URL, maxRetries: 0 };
const llm = new ChatOllama({ ...base, numPredict: 10 });

await run({
  chat: async () => (await llm.invoke("Once upon a time")).content,
  stream: async () => {
    let text = "";
    for await (const part of await llm.stream("Once upon a time")) text += part.content;
    return text;
  },
  structured: async () =>
    (
      await new ChatOllama(base)
        .withStructuredOutput({ title: "City", ...TOOL.function.parameters }, { method: "jsonSchema" })
        .invoke("Once")
    ).city,
  embeddings: async () => (await new OllamaEmbeddings(base).embedDocuments(["a", "b"]))[1].length,
});
