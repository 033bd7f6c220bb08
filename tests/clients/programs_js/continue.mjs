// Continue's command with a configuration as `pumice launch continue --write` makes it, without its own servers.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { MODEL, URL as ADDRESS, run } from "./common.mjs";

const folder = mkdtempSync(join(tmpdir(), "continue-"));
const config = join(folder, "config.yaml");
writeFileSync(
  config,
  `name: Local
version: 0.0.1
schema: v1
models:
  - {name: Pumice, provider: openai, model: ${MODEL}, apiBase: "${ADDRESS}/v1", apiKey: none, roles: [chat]}
`,
);
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules", "@continuedev", "cli", "dist", "cn.js");

function ask(...options) {
  return execFileSync(process.execPath, [program, "--config", config, ...options, "-p", "Tell a story."], {
    cwd: folder,
    env: { ...process.env, HOME: folder, CONTINUE_CLI_ENABLE_TELEMETRY: "0" },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 120000,
  }).trim();
}

await run({ chat: () => ask("--silent") });
rmSync(folder, { recursive: true, force: true });
