"""Compare texts with and without the fast paths of a GPU: a token in one dispatch, products in lanes of matrix units.

    python bench/vulkan_texts.py [--types Q4_0 Q4_K_M] [--models llama-1b.gguf] [--prompts 60] [--tokens 48]

The demo model in each type, and each of the models, continue prompts of nine and more tokens, greedily and sampled
with fixed seeds, with each path and without. A row has the number of equal texts. Where greedy texts of the demo model
differ, it also has the largest distance between the logits of the two tokens that differ first, by the NumPy backend,
in standard deviations: rounding explains small ones alone. With ``--activations float`` both sides round less.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import pumice  # noqa: E402
from pumice.quantize import QuantizeOptions, quantize  # noqa: E402
from pumice_vulkan.persistent import PersistentPath  # noqa: E402

PATHS = {  # persistent, lanes
    "dispatches": ("never", False),
    "one dispatch": ("always", False),
    "lanes": ("never", True),
    "both": ("always", True),
}
CHAINS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.8, "top_k": 40}}
Texts = dict[str, list[list[int]]]


def prompts(count: int) -> list[str]:
    who = ["a little girl", "a boy", "a big dog", "a small cat", "an old man", "a red bird"]
    what = ["wanted to play with a ball", "went to the park", "found a shiny stone", "was very sad", "liked to sing"]
    where = ["One day,", "In the morning,", "Then,", "Suddenly,"]
    every = [f"Once upon a time there was {a} who {b}. {c}" for a in who for b in what for c in where]
    return [every[i * 7 % len(every)] for i in range(count)]


@contextlib.contextmanager
def without_lanes(lanes: bool) -> Iterator[None]:
    with contextlib.nullcontext() if lanes else mock.patch("pumice_vulkan.probe.lanes_are_known", return_value=False):
        yield


def texts(path: Path, persistent: str, lanes: bool, arguments: argparse.Namespace) -> tuple[Texts, bool]:
    """Return the tokens of all texts by chain, and whether tokens were one dispatch."""
    config = {"vulkan": {"persistent": persistent, "prepare": "never", "activations": arguments.activations}}
    options = {"backend": "vulkan", "n_ctx": 512, "n_batch": 128, "config": config}
    begins = mock.patch.object(PersistentPath, "begin", autospec=True, side_effect=PersistentPath.begin)
    with begins as begun, without_lanes(lanes), pumice.load(path, **options) as model:
        tokens = {
            name: [
                list(model.generate(text, max_tokens=arguments.tokens, seed=seed, **chain).tokens)
                for seed, text in enumerate(prompts(arguments.prompts))
            ]
            for name, chain in CHAINS.items()
        }
        return tokens, begun.called


def distances(path: Path, first: list[list[int]], second: list[list[int]], count: int) -> list[float]:
    """Return the distance of logits of the first unequal tokens of each pair of texts, in float32 by NumPy."""
    gaps = []
    with pumice.load(path, backend="numpy", n_ctx=512) as model:
        for text, one, other in zip(prompts(count), first, second, strict=True):
            if one == other:
                continue
            position = next(i for i in range(min(len(one), len(other))) if one[i] != other[i])
            logits = model.logits([*model.tokenizer.tokenize(text), *one[:position]])[-1]
            gaps.append(float(abs(logits[one[position]] - logits[other[position]]) / np.std(logits)))
    return gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", default=["Q4_0", "Q4_K_M"])
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--models", nargs="*", type=Path, default=[])
    parser.add_argument("--activations", default="auto")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for type in arguments.types:
            path = Path(folder) / f"{type}.gguf"
            quantize(pumice.demo_model_path(), path, type, options=QuantizeOptions(allow_requantize=True))
            compare(type, path, arguments, explains=True)
        for path in arguments.models:
            compare(path.stem, path, arguments, explains=False)


def compare(title: str, path: Path, arguments: argparse.Namespace, explains: bool) -> None:
    """Print a row for each path; with ``explains`` also how far apart the logits of unequal tokens are."""
    reference: Texts | None = None
    for name, (persistent, lanes) in PATHS.items():
        own, one_dispatch = texts(path, persistent, lanes, arguments)
        if reference is None:
            reference = own
            continue
        pairs = {chain: list(zip(reference[chain], own[chain], strict=True)) for chain in CHAINS}
        cells = [f"{chain} {sum(a == b for a, b in both)} of {len(both)} equal" for chain, both in pairs.items()]
        if explains:
            far = distances(path, reference["greedy"], own["greedy"], arguments.prompts)
            cells.append(f"farthest {max(far, default=0.0):.1e} deviations")
        if persistent == "always" and not one_dispatch:
            cells.append("(without one dispatch: it is for other shapes)")
        print(f"{title:14} {name:13}", *cells, flush=True)


if __name__ == "__main__":
    main()
