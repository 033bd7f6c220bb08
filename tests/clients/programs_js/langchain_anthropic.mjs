import { ChatAnthropic } from "@langchain/anthropic";
import { MODEL, TOOL, URL, run } from "./common.mjs";

const base = { model: MODEL, anthropicApiUrl: URL, apiKey: "none", maxRetries: 0, maxTokens: 100 };
const llm = new ChatAnthropic(base);

await run({
  chat: async () => (await llm.invoke("Once upon a time")).content,
  stream: async () => {
    let text = "";
    for await (const part of await llm.stream("Once upon a time")) text += part.content;
    return text;
  },
  tools: async () => {
    const caller = new ChatAnthropic(base).bindTools([TOOL], { tool_choice: { type: "tool", name: "get_weather" } });
    return (await caller.invoke("Once")).tool_calls[0].name;
  },
});
