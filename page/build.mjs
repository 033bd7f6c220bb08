// Bundles src/ into plugins/pumice_server/page, or into the folder that is named, with the licences of what goes in.
import { build } from "esbuild";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../plugins/pumice_server/page");

/** The smallest file of temml is a script that makes a variable; here it is a module. */
const asModule = {
  name: "as-module",
  setup({ onLoad }) {
    onLoad({ filter: /temml\.min\.js$/ }, async ({ path }) => ({ contents: `${await readFile(path, "utf8")}\nexport default temml;` }));
  },
};

/** marked without what makes HTML of tokens: its statements after the classes use them all, so the bundler would keep them. */
const lexerOnly = {
  name: "lexer-only",
  setup({ onLoad }) {
    onLoad({ filter: /marked\.esm\.js$/ }, async ({ path }) => {
      const [, classes, names] = (await readFile(path, "utf8")).match(/^([^]*);var \w+=new \w+;function [^]*;export\{([^}]*)\}/) ?? [];
      const kept = names?.split(",").filter((name) => /^\w+ as (Lexer|getDefaults)$/.test(name));
      if (kept?.length !== 2) throw new Error(`${path}: not the marked that this build knows; mend lexerOnly in build.mjs`);
      return { contents: `${classes};export{${kept}};` };
    });
  },
};

/** Packages whose files are in the bundle. */
function packagesOf(metafile) {
  const names = Object.keys(metafile.inputs).map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]);
  return [...new Set(names.filter(Boolean))].sort();
}

async function licenceOf(name) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${name} has no licence file`);
  return `${name} ${version}, ${license}\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`;
}

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/theme.ts"],
  outdir: out,
  bundle: true,
  format: "esm",
  splitting: true,
  plugins: [asModule, lexerOnly],
  chunkNames: "[name]",
  minify: true,
  metafile: true,
  charset: "utf8",
  target: "es2022",
  legalComments: "none",
  drop: ["console"], // messages of packages to who develops with them
  jsx: "automatic",
  jsxImportSource: "preact",
});
for (const name of ["index.html", "frame.html", "icon.svg"]) await cp(join(here, "src", name), join(out, name));
for (const name of await readdir(join(here, "src/languages"))) await cp(join(here, "src/languages", name), join(out, name));
const licences = await Promise.all(packagesOf(metafile).map(licenceOf));
await writeFile(join(out, "licences.txt"), `The page contains these packages.\n\n${licences.join(`\n${"-".repeat(80)}\n\n`)}`);
