import Anthropic from "@anthropic-ai/sdk";
import { MESSAGES, MODEL, TOOL, URL, run } from "./common.mjs";

const client = new Anthropic({ baseURL: URL, apiKey: "none" });
const base = { model: MODEL, max_tokens: 10, messages: MESSAGES };

await run({
  chat: async () => (await client.messages.create(base)).content[0].text,
  stream: async () => (await client.messages.stream(base).finalMessage()).content[0].text,
  tools: async () => {
    const tools = [{ name: "get_weather", input_schema: TOOL.function.parameters }];
    const tool_choice = { type: "tool", name: "get_weather" };
    const answer = await client.messages.create({ ...base, max_tokens: 100, tools, tool_choice });
    return answer.content.at(-1).name;
  },
});
