"""Make tests/fixtures/zod_schemas.json: JSON schemas that the package zod (npm) writes for each of its types.

Needs Node.js and npm, which fetches zod into a temporary folder.
"""

import json
import subprocess
import tempfile
from pathlib import Path

FIXTURE = Path(__file__).parents[1] / "fixtures" / "zod_schemas.json"
SCRIPT = """
import { z } from "zod";
const leaves = ["string", "email", "url", "uuid", "uuidv4", "guid", "emoji", "nanoid", "cuid", "cuid2", "ulid", "xid",
    "ksuid", "ipv4", "ipv6", "cidrv4", "cidrv6", "base64", "base64url", "e164", "jwt", "hostname", "hex", "number",
    "int", "int32", "uint32", "float32", "float64", "boolean", "null", "any", "unknown", "json", "file"];
const types = Object.fromEntries(leaves.map(name => [name, z[name]()]));
const node = z.object({ name: z.string(), get children() { return z.array(node); } });
const cat = z.object({ kind: z.literal("cat"), lives: z.int() }), dog = z.object({ kind: z.literal("dog") });
Object.assign(types, {
    date: z.iso.date(), time: z.iso.time(), datetime: z.iso.datetime({ offset: true }), duration: z.iso.duration(),
    regex: z.string().regex(/^[a&&b]$/), prefix: z.string().startsWith("a.b"), includes: z.string().includes("x"),
    lowercase: z.string().lowercase(), length: z.string().length(5), template: z.templateLiteral(["hi-", z.int()]),
    positive: z.number().positive(), step: z.number().multipleOf(0.01), bounds: z.number().min(-1.5).max(1e300),
    never: z.object({ a: z.never().optional(), b: z.string() }), literals: z.literal([1, "a", null, true]),
    enum: z.enum(["a", "b"]), numbers: z.enum({ A: 0, B: 1 }), array: z.array(z.string()).min(1).max(3),
    tuple: z.tuple([z.string(), z.number()]), rest: z.tuple([z.string()], z.number()),
    object: z.object({ a: z.string(), b: z.number().optional(), c: z.string().default("x"), d: z.int().nullable() }),
    loose: z.looseObject({ a: z.string() }), catchall: z.object({ a: z.string() }).catchall(z.number()),
    record: z.record(z.string(), z.number()), keys: z.record(z.enum(["a", "b"]), z.number()),
    partial: z.partialRecord(z.enum(["a", "b"]), z.number()), pattern: z.record(z.string().regex(/^x-/), z.string()),
    union: z.union([z.string(), z.number()]), discriminated: z.discriminatedUnion("kind", [cat, dog]),
    intersection: z.intersection(cat, z.object({ name: z.string() })), readonly: z.array(z.int()).readonly(), node,
});
const schemas = {};
for (const target of ["draft-2020-12", "draft-7", "draft-4", "openapi-3.0"])
    for (const [name, type] of Object.entries(types)) schemas[`${name} ${target}`] = z.toJSONSchema(type, { target });
console.log(JSON.stringify(schemas));
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "install", "--silent", "zod@4"], cwd=folder, check=True)
        Path(folder, "schemas.mjs").write_text(SCRIPT)
        done = subprocess.run(["node", "schemas.mjs"], cwd=folder, check=True, capture_output=True, text=True)
    kept: dict[str, object] = {}
    for name, schema in json.loads(done.stdout).items():
        schema.pop("$schema", None)
        if schema not in kept.values():
            kept[name] = schema
    lines = (f"{json.dumps(name)}: {json.dumps(schema, separators=(',', ':'))}" for name, schema in kept.items())
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
