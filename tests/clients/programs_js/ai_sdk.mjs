import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, jsonSchema, streamText, tool, Output } from "ai";
import { MODEL, TOOL, URL, run } from "./common.mjs";

const provider = createOpenAICompatible({
  name: "pumice",
  baseURL: `${URL}/v1`,
  supportsStructuredOutputs: true,
  includeUsage: true,
});
const base = { model: provider(MODEL), prompt: "Once upon a time", maxRetries: 0 };
const schema = jsonSchema(TOOL.function.parameters);

await run({
  chat: async () => (await generateText({ ...base, maxOutputTokens: 10 })).text,
  stream: async () => {
    let text = "";
    for await (const part of streamText({ ...base, maxOutputTokens: 10 }).textStream) text += part;
    return text;
  },
  tools: async () => {
    const tools = { get_weather: tool({ inputSchema: schema }) };
    const toolChoice = { type: "tool", toolName: "get_weather" };
    return (await generateText({ ...base, tools, toolChoice })).toolCalls[0].toolName;
  },
  structured: async () => (await generateText({ ...base, output: Output.object({ schema }) })).output.city,
  embeddings: async () =>
    (await embed({ model: provider.embeddingModel(MODEL), value: "a" })).embedding.length,
});
