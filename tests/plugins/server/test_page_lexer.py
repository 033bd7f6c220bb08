"""Markdown of a hostile model costs the page a bounded time: each text here took marked alone 10 to 70 seconds."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = ROOT / "page" / "node_modules"
SECONDS = 6.0

pytestmark = pytest.mark.skipif(
    not (MODULES / "esbuild").exists() or not shutil.which("node"), reason="page/node_modules is not there (.ci/page)"
)

HOSTILE = {
    "emphasis in words": "_a_b" * 20_000,
    "strikethrough": "~a~~b " * 15_000,
    "tabs": "\n".join("\t" * i + "- x" for i in range(440)),
    "a line in 40 lists": "- " * 40 + "x\n" + "y\n" * 20_000,
    "paragraphs": "a\n\n" * 30_000,
    "an address": "a" * 90_000 + "@",
}
NORMAL = "# A\n\n" + 200 * (
    "1. *one* and **two**\n   - `three`\n     - four, f(x_1)\n\n> quoted\n\n$$x^2$$\n\nlast _words_.\n\n"
)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict:
    module = tmp_path_factory.mktemp("page") / "lexer.mjs"
    options = ["--bundle", "--format=esm", "--platform=node", "--log-level=error", f"--outfile={module}"]
    binary = MODULES / ".bin" / "esbuild"
    subprocess.run([binary, ROOT / "page" / "src" / "lexer.ts", *options], check=True, cwd=ROOT / "page")
    texts = {"normal": NORMAL, **HOSTILE}
    command = ["node", Path(__file__).with_name("page_lexer.mjs"), module]
    done = subprocess.run(command, input=json.dumps([*texts.values()]), capture_output=True, text=True, check=True)
    return dict(zip(texts, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_takes_a_bounded_time(results, name):
    assert results[name]["seconds"] < SECONDS


def test_a_normal_text_keeps_its_marks(results):
    tokens = results["normal"]["tokens"]
    kinds = [token["type"] for token in tokens if token["type"] != "space"]
    assert kinds == ["heading", *["list", "blockquote", "mathBlock", "paragraph"] * 200]
    last = tokens[-1]["tokens"] if tokens[-1]["type"] == "paragraph" else tokens[-2]["tokens"]
    assert [token["type"] for token in last] == ["text", "em", "text"]
    item = next(token for token in tokens if token["type"] == "list")["items"][0]
    assert [token["type"] for token in item["tokens"]][-1] == "list"
