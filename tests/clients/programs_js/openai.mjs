import OpenAI from "openai";
import { MESSAGES, MODEL, TOOL, URL, run } from "./common.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "none" });
const base = { model: MODEL, messages: MESSAGES };

await run({
  chat: async () => (await client.chat.completions.create({ ...base, max_tokens: 10 })).choices[0].message.content,
  stream: async () => {
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...base, max_tokens: 10, stream: true }))
      text += chunk.choices[0]?.delta?.content ?? "";
    return text;
  },
  tools: async () => {
    const tool_choice = { type: "function", function: { name: "get_weather" } };
    const answer = await client.chat.completions.create({ ...base, tools: [TOOL], tool_choice });
    return answer.choices[0].message.tool_calls[0].function.name;
  },
  embeddings: async () => (await client.embeddings.create({ model: MODEL, input: ["a", "b"] })).data[1].embedding.length,
  responses: async () => (await client.responses.create({ model: MODEL, input: "Once", max_output_tokens: 10 })).output_text,
});
