"""Cost of speculative decoding: processor time with it relative to the time without, in pairs of the same requests.

Prints the median ratio of each kind of text and number of sequences, with a bootstrap interval of 95 %. The texts of
bench/speculation.py are given; ``fresh`` is what the model samples at temperature 1, where drafts are rarely right,
``pattern`` and ``records`` what it samples with a grammar. ``--speculate wrong`` drafts tokens that the grammar allows
and the model hardly chooses.

    python bench/speculation_cost.py --cases fresh,prose,chat,code --parallel 1,4,16 --seconds 60
    python bench/speculation_cost.py --cases pattern,records --speculate wrong --parallel 1,16
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from speculation import TOKENIZER, Bench, request  # bench/
from structured_drafts import FORMS  # bench/

import pumice
from pumice.plugin import Proposer, hookimpl

RESAMPLES = 4000
N_PROMPT = 300


class Wrong(Proposer):
    """Proposes letters that words hardly contain."""

    tokens = [TOKENIZER.tokenize(letter, add_special=False, parse_special=False)[-1] for letter in "qzxjkq"]

    def propose(self, n: int) -> Sequence[int]:
        return (self.tokens * n)[:n]


class WrongDrafts:
    @hookimpl
    def pumice_register_proposers(self, register):  # type: ignore[no-untyped-def]
        register("wrong", Wrong)


def requests(case: str, n_seqs: int, n: int, pair: int) -> list[dict[str, Any]]:
    """Return the requests of a pair; each pair has other parts of the text, or other seeds."""
    seeds = range(pair * n_seqs, (pair + 1) * n_seqs)
    if case == "fresh" or case in FORMS:
        own = {"prompt": "Once upon a time", "max_tokens": n, "temperature": 1.0, "ignore_eos": True}
        own |= FORMS.get(case, {})
        return [{**own, "seed": seed} for seed in seeds]
    return [request(case, N_PROMPT, n, seed) for seed in seeds]


def seconds(model: pumice.Model, batch: list[dict[str, Any]], choice: str) -> tuple[float, int, int]:
    """Return the processor time of the requests, and the numbers of drafted and accepted tokens.

    Prompts are in the cache, but are no earlier texts of speculation.
    """
    prompts = [options["prompt"] for options in batch]
    options = [{key: value for key, value in single.items() if key != "prompt"} for single in batch]
    salt = uuid.uuid4().hex
    prefills = [{**own, "max_tokens": 1, "speculate": "off"} for own in options]
    model.generate_many(prompts, each=prefills, cache_salt=salt)
    began = time.process_time()
    completions = model.generate_many(prompts, each=options, speculate=choice, cache_salt=salt)
    spent = time.process_time() - began
    timings = [completion.timings for completion in completions]
    return spent, sum(timing.n_drafted for timing in timings), sum(timing.n_accepted for timing in timings)


def interval(ratios: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bootstrap interval of the median that holds 95 % of resampled medians."""
    random = np.random.default_rng(0)
    medians = [float(np.median(random.choice(ratios, len(ratios)))) for _ in range(RESAMPLES)]
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def measure(model: pumice.Model, case: str, n_seqs: int, arguments: argparse.Namespace) -> str:
    """Return a row of the table. The first pairs, which warm up, are not counted."""
    pairs: list[tuple[float, float]] = []
    n_drafted = n_accepted = 0
    for _ in range(2):
        seconds(model, requests(case, n_seqs, arguments.n, 0), "off")
        seconds(model, requests(case, n_seqs, arguments.n, 0), arguments.speculate)
    end = time.perf_counter() + arguments.seconds
    while time.perf_counter() < end or len(pairs) < 3:
        batch = requests(case, n_seqs, arguments.n, len(pairs) + 1)
        spent: dict[str, float] = {}
        choices = ["off", arguments.speculate]
        for choice in choices if len(pairs) % 2 else reversed(choices):
            spent[choice], drafted, accepted = seconds(model, batch, choice)
            n_drafted, n_accepted = n_drafted + drafted, n_accepted + accepted
        pairs.append((spent["off"], spent[arguments.speculate]))
    without, with_drafts = np.array(pairs).T
    ratios = with_drafts / without
    low, high = interval(ratios)
    share = with_drafts.sum() / without.sum()
    return (
        f"| {case} | {n_seqs} | {len(pairs)} | {np.median(ratios):.4f} | {low:.4f} to {high:.4f} | {share:.4f} "
        f"| {n_accepted} of {n_drafted} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", help="GGUF file (default: the demo model)")
    parser.add_argument("--speculate", default="auto", help="proposers, comma-separated")
    parser.add_argument("--cases", default="fresh,prose,chat,code", help="texts to generate, comma-separated")
    parser.add_argument("--parallel", default="1,4,16", help="numbers of concurrent sequences, comma-separated")
    parser.add_argument("-n", type=int, default=200, help="tokens to generate")
    parser.add_argument("--threads", type=int, default=1, help="threads of the CPU backend")
    parser.add_argument("--seconds", type=float, default=60, help="time of each row")
    arguments = parser.parse_args()
    print("| text | sequences | pairs | median | 95 % interval | ratio of sums | accepted |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for n_seqs in map(int, arguments.parallel.split(",")):
        for case in arguments.cases.split(","):
            options: dict[str, Any] = {"n_parallel": n_seqs, "n_ctx": (N_PROMPT + arguments.n + 64) * n_seqs}
            config = {"cpu": {"threads": arguments.threads}}
            with pumice.load(
                arguments.model, backend="cpu", plugins=[Bench(), WrongDrafts()], config=config, **options
            ) as model:
                print(measure(model, case, n_seqs, arguments), flush=True)


if __name__ == "__main__":
    main()
