"""Check that a text is a story: `python -m tools.demo_model.checker FILE` (stories separated by lines of `---`).

A story passes if the grammar can produce it word for word with one consistent world: names and pronouns stay the same,
everybody is where they went, a thing is where it was left or with the person it was given to, the events follow one of
the plots, and the story reaches an ending. The checker is the grammar's reader without any other knowledge.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from . import notation
from .generate import stories


@dataclass(frozen=True)
class Verdict:
    ok: bool
    log_p: float
    """Log-probability of the text under the grammar in nats; -inf for a text outside of the grammar."""
    position: int
    """Number of characters that could be read."""
    expected: tuple[str, ...]
    """Possible continuations at that position: a fact of this story, such as "hero 'Mia'", or other wording."""

    def __str__(self) -> str:
        return "ok" if self.ok else f"at character {self.position}: expected {' or '.join(self.expected)}"


def check(text: str) -> Verdict:
    reading = notation.load().read(text.strip())
    return Verdict(reading.ok, reading.log_p, reading.position, tuple(sorted(reading.missed)))


@dataclass(frozen=True)
class CorpusCheck:
    """Totals of a check over a corpus."""

    stories: int
    passed: int
    nats: float
    """Sum of -log p of the stories that passed."""


def check_shard(shard: int, *, seed: int, count: int) -> CorpusCheck:
    """Generate the first `count` stories of a shard again and check each."""
    verdicts = [check(story.text) for story in itertools.islice(stories(seed, shard), count)]
    passed = [verdict for verdict in verdicts if verdict.ok]
    return CorpusCheck(len(verdicts), len(passed), -sum(verdict.log_p for verdict in passed))


def check_corpus(seed: int, shards: int, count: int, processes: int) -> CorpusCheck:
    """Check `count` stories of each of the shards 0 ... shards - 1."""
    with Pool(processes) as pool:
        results = pool.map(partial(check_shard, seed=seed, count=count), range(shards), chunksize=1)
    return CorpusCheck(
        sum(result.stories for result in results),
        sum(result.passed for result in results),
        sum(result.nats for result in results),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file", type=Path, nargs="?", help="stories to check; without it, the corpus of --seed is checked"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--count", type=int, default=1000, help="stories per shard")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    if args.file is None:
        result = check_corpus(args.seed, args.shards, args.count, args.processes)
        print(json.dumps(vars(result)))
        sys.exit(result.passed < result.stories)
    failed = 0
    for i, text in enumerate(args.file.read_text(encoding="utf-8").split("\n---\n")):
        if text.strip():
            verdict = check(text)
            failed += not verdict.ok
            print(f"story {i + 1}: {verdict}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
