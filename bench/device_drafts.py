"""Drafts of n-grams on a GPU: time without drafts relative to that with, for texts that repeat themselves and not.

A model of random weights writes a cycle greedily, and noise when it samples. Runs with drafts and without take turns.

    python bench/device_drafts.py llama-1b-q4_0.gguf --repetitions 4 --seconds 100
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import product
from typing import Any

import pumice

TEXTS: dict[str, dict[str, Any]] = {
    "a cycle, greedy": {"temperature": 0},
    "a cycle, greedy, penalty of 1.0001": {"temperature": 0, "repeat_penalty": 1.0001},
    "nothing repeats, sampled": {"temperature": 1.0, "top_k": 64, "min_p": 0.0, "top_p": 1.0},
    "of the two likeliest, temperature 0.15": {"temperature": 0.15, "top_k": 2, "min_p": 0.0, "top_p": 1.0},
    "of the two likeliest, temperature 0.5": {"temperature": 0.5, "top_k": 2, "min_p": 0.0, "top_p": 1.0},
}

FIXED = ("a cycle, greedy",)
"""Texts for fixed numbers of drafted tokens."""


def prompts(n_seqs: int, turn: int) -> list[list[int]]:
    return [[300 + 7 * turn + i + 31 * j for j in range(12)] for i in range(n_seqs)]


def write(model: pumice.Model, n_seqs: int, turn: int, options: dict[str, Any]) -> tuple[float, list[Any]]:
    """Return the seconds of texts at once, and the completions."""
    began = time.perf_counter()
    done = model.generate_many(prompts(n_seqs, turn), ignore_eos=True, seed=turn, **options)
    return time.perf_counter() - began, done


def compare(model: pumice.Model, n_seqs: int, repetitions: int, options: dict[str, Any]) -> str:
    """Return the ratio of times, and the accepted tokens, of texts with drafts."""
    ratios, n_drafted, n_accepted = [], 0, 0
    for turn in range(repetitions):
        plain, _ = write(model, n_seqs, turn, options | {"speculate": "off"})
        drafting, done = write(model, n_seqs, turn, options | {"speculate": "ngram"})
        ratios.append(plain / drafting)
        n_drafted += sum(item.timings.n_drafted for item in done)
        n_accepted += sum(item.timings.n_accepted for item in done)
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    return f"{middle:.2f} ({low:.2f} to {high:.2f}) | {n_accepted:,} of {n_drafted:,}"


def integers(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--backend", default="vulkan")
    parser.add_argument("--lengths", type=integers, default="256,1024", help="tokens of a text, comma-separated")
    parser.add_argument("--sequences", type=integers, default="1", help="texts at once, comma-separated")
    parser.add_argument(
        "--n-draft", type=integers, default="-1,15", help="drafted tokens, with commas; -1: as measured"
    )
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="time after which no measurement begins")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    lengths, numbers, at_once = arguments.lengths, arguments.n_draft, arguments.sequences
    print("| text | at once | tokens | `n_draft` | without / with | accepted |\n| --- | --- | --- | --- | --- | --- |")
    for n_draft in numbers:
        config: dict[str, Any] = {"speculate": "ngram", "n_draft": n_draft}
        sizes = {"n_ctx": max(lengths) + 32, "n_parallel": max(at_once)}
        with pumice.load(arguments.model, backend=arguments.backend, config=config, **sizes) as model:
            model.engine.runner.placed.wait_until_prepared()
            write(model, max(at_once), 99, {"temperature": 0, "speculate": "off", "max_tokens": max(lengths)})
            for n_seqs, (name, options) in product(at_once, TEXTS.items()):
                for length in lengths if "cycle" in name else lengths[:1]:
                    if (n_draft < 0 or name in FIXED) and time.monotonic() < end:
                        result = compare(model, n_seqs, arguments.repetitions, options | {"max_tokens": length})
                        print(f"| {name} | {n_seqs} | {length} | {n_draft} | {result} |", flush=True)


if __name__ == "__main__":
    main()
