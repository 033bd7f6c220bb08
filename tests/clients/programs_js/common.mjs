// Parts of the programs: the server's address, a chat, a tool, and the report of what worked, a line for each feature.
export const URL = process.env.PUMICE_URL;
export const MODEL = process.env.PUMICE_MODEL;
export const MESSAGES = [{ role: "user", content: "Once upon a time" }];
export const TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Tell the weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

export async function run(checks) {
  for (const [name, check] of Object.entries(checks)) {
    let problem = "";
    try {
      const value = await check();
      if (!value) problem = `nothing was returned: ${value}`;
    } catch (error) {
      problem = `${error.name}: ${error.message}`.split("\n")[0].slice(0, 300);
    }
    console.log(`${name}: ${problem || "ok"}`);
  }
}
