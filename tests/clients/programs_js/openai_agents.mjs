import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run as runAgent, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";
import { MODEL, URL, run } from "./common.mjs";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "none" });
const answer = async (model) => (await runAgent(new Agent({ name: "a", model }), "Once upon a time")).finalOutput;

await run({
  chat: () => answer(new OpenAIChatCompletionsModel(client, MODEL)),
  responses: () => answer(new OpenAIResponsesModel(client, MODEL)),
});
