"""Ask a model, through Pumice, about pictures that it was not trained on: `python -m tools.demo_vision.measure`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pumice

from .scenes import draw, scenes
from .sentences import QUESTIONS, description

SHARD = -3  # neither of the training nor of its own measurement


def measure(model: pumice.Model, seed: int, count: int, **options: Any) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return how many answers are right, word for word, by the kind of question, and those that are wrong."""
    random = Random(f"{seed}/{SHARD}")
    right: dict[str, Counter[bool]] = {kind: Counter() for kind in ("text", *QUESTIONS)}
    failures: list[dict[str, str]] = []
    for scene in itertools.islice(scenes(seed, SHARD), count):
        picture = pumice.Image(draw(scene, random))
        for kind in right:
            if kind == "text":
                expected, answer = description(scene), model.generate([picture], max_tokens=100, **options).text
            else:
                question, expected = QUESTIONS[kind](scene, random)
                message = {"role": "user", "content": [picture, question]}
                answer = model.chat([message], max_tokens=100, **options).message.content
            right[kind][answer == expected] += 1
            if answer != expected:
                failures.append({"kind": kind, "expected": expected, "answer": answer})
    return {kind: f"{counts[True]} of {counts.total()}" for kind, counts in right.items()}, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=pumice.demo_model_path(vision=True))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--backend", default="cpu")
    args = parser.parse_args()
    with pumice.load(args.model, backend=args.backend) as model:
        right, failures = measure(model, args.seed, args.pictures, temperature=args.temperature)
    print(json.dumps({"right": right, "failures": failures[:20]}, indent=1))


if __name__ == "__main__":
    main()
