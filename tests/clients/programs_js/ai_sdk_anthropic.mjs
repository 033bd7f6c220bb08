import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { MODEL, TOOL, URL, run } from "./common.mjs";

const provider = createAnthropic({ baseURL: `${URL}/v1`, apiKey: "none" });
const base = { model: provider(MODEL), prompt: "Once upon a time", maxRetries: 0, maxOutputTokens: 100 };

await run({
  chat: async () => (await generateText(base)).text,
  stream: async () => {
    let text = "";
    for await (const part of streamText(base).textStream) text += part;
    return text;
  },
  tools: async () => {
    const tools = { get_weather: tool({ inputSchema: jsonSchema(TOOL.function.parameters) }) };
    const toolChoice = { type: "tool", toolName: "get_weather" };
    return (await generateText({ ...base, tools, toolChoice })).toolCalls[0].toolName;
  },
});
