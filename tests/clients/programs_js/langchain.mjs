import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { MODEL, TOOL, URL, run } from "./common.mjs";

const key = { model: MODEL, apiKey: "none", configuration: { baseURL: `${URL}/v1` }, maxRetries: 0 };
const llm = new ChatOpenAI({ ...key, maxTokens: 10 });

await run({
  chat: async () => (await llm.invoke("Once upon a time")).content,
  stream: async () => {
    let text = "";
    for await (const part of await llm.stream("Once upon a time")) text += part.content;
    return text;
  },
  tools: async () => {
    const caller = new ChatOpenAI(key).bindTools([TOOL], { tool_choice: "get_weather" });
    return (await caller.invoke("Once")).tool_calls[0].name;
  },
  structured: async () =>
    (await new ChatOpenAI(key).withStructuredOutput({ title: "City", ...TOOL.function.parameters }).invoke("Once")).city,
  embeddings: async () => (await new OpenAIEmbeddings(key).embedDocuments(["a", "b"]))[1].length,
});
