"""Compare a Vulkan model's rates and logits with several values of an option or of a constant, in turns.

    python bench/vulkan_choices.py MODEL persistent never auto
    python bench/vulkan_choices.py MODEL tuning.ADDED_ALONE 0 2097152 [-p 512] [-n 128] [-r 5]

A name with a dot is a constant of a module of ``pumice_vulkan``, others are options of the section ``vulkan``. Prints
medians of tokens/s of prompts and of generation with all measured rates, and the mean square of differences from the
first value's logits by that of the logits.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import statistics
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "plugins")]

import pumice  # noqa: E402
from pumice.evaluate.speed import generation_seconds, prompt_seconds, settle  # noqa: E402

IDS = [(7 * i + 3) % 1000 for i in range(24)]


def literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("name", help="constant, such as tuning.ADDED_ALONE, or option of the section vulkan")
    parser.add_argument("values", nargs="+", type=literal)
    parser.add_argument("-p", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("-n", type=int, default=128, help="tokens to generate")
    parser.add_argument("-r", type=int, default=5, help="measurements of each value")
    arguments = parser.parse_args()

    def chosen(value: Any) -> contextlib.AbstractContextManager[Any]:
        if "." not in arguments.name:
            return contextlib.nullcontext()
        return mock.patch(f"pumice_vulkan.{arguments.name}", value)

    with contextlib.ExitStack() as stack:
        models = []
        for value in arguments.values:
            options = {} if "." in arguments.name else {arguments.name: value}
            section = {"prepare": "never", **options}
            with chosen(value):
                model = pumice.load(arguments.model, backend="vulkan", n_ctx=4096, config={"vulkan": section})
                models.append(stack.enter_context(model))
                generation_seconds(model, 512)  # pipelines, and the clock of an idle GPU
                settle(model)
        rates: list[tuple[list[float], list[float]]] = [([], []) for _ in models]
        for _ in range(arguments.r):
            for value, model, (prompts, tokens) in zip(arguments.values, models, rates, strict=True):
                with chosen(value):
                    prompt_seconds(model, arguments.p)
                    prompts.append(arguments.p / prompt_seconds(model, arguments.p))
                    tokens.append(arguments.n / generation_seconds(model, arguments.n))
        logits = []
        for value, model in zip(arguments.values, models, strict=True):
            with chosen(value):
                logits.append(np.concatenate([model.logits(IDS[:1]), model.logits(IDS)]))
        for value, (prompts, tokens), found in zip(arguments.values, rates, logits, strict=True):
            error = np.mean((found - logits[0]) ** 2) / np.mean(logits[0] ** 2)
            medians = (
                f"pp{arguments.p} {statistics.median(prompts):.0f}, tg{arguments.n} {statistics.median(tokens):.1f}"
            )
            every = " ".join(f"{rate:.0f}" for rate in (*sorted(prompts), *sorted(tokens)))
            print(f"{arguments.name} = {value}: {medians}, error {error:.1e} ({every})", flush=True)


if __name__ == "__main__":
    main()
