"""Write stories from a seed: `python -m tools.demo_model.generate --seed 1 --count 5`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from . import notation
from .grammar import Dice


class Story(NamedTuple):
    text: str
    log_p: float
    """Log-probability of the sampled choices in nats; the text's own may be slightly higher."""


def stories(seed: int, shard: int = 0) -> Iterator[Story]:
    """Yield stories without end, deterministic for a seed and shard."""
    story_grammar = notation.load()
    dice = Dice(f"pumice demo stories/{seed}/{shard}")
    while True:
        before = dice.log_p
        text = story_grammar.write(dice)
        yield Story(text, dice.log_p - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5)
    args = parser.parse_args()
    for _, story in zip(range(args.count), stories(args.seed), strict=False):
        print(story.text, end="\n\n---\n\n")


if __name__ == "__main__":
    main()
