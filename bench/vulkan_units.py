"""Measure a GPU with some of its units off: ``python bench/vulkan_units.py MODEL.gguf [--json FILE]``.

The rates of prompts and of generation with everything that the device offers, without matrix units, without integer dot
products, and without both, as on GPUs that lack them. A feature is taken away as a quirk of the driver would be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "plugins")]

import pumice  # noqa: E402
from pumice.evaluate.speed import generation_seconds, parallel_seconds, prompt_seconds  # noqa: E402
from pumice_vulkan import quirks  # noqa: E402

MATRICES, DOT = {"cooperative_matrix"}, {"integer_dot_product", "integer_dot_product_fast"}
CASES = {
    "everything": frozenset[str](),
    "no matrix units": frozenset(MATRICES),
    "no int8": frozenset(DOT),
    "neither": frozenset(MATRICES | DOT),
}


def measure(path: str, without: frozenset[str], arguments: argparse.Namespace) -> dict[str, float]:
    """Return tokens/s by measurement, medians after a warm-up."""
    most = max(arguments.parallel)
    n_ctx = max(arguments.prompt + 32, most * (arguments.each + arguments.generate + 64))
    rows = (*quirks.QUIRKS, quirks.Quirk("", without, "taken away for a measurement"))
    config = {"n_parallel": most, "vulkan": {"activations": arguments.activations}}
    with (
        mock.patch.object(quirks, "QUIRKS", rows),
        pumice.load(path, backend="vulkan", n_ctx=n_ctx, config=config) as model,
    ):
        rates = {f"prompt {arguments.prompt}": _rate(arguments.prompt, lambda n: prompt_seconds(model, n), arguments)}
        rates["generation"] = _rate(arguments.generate, lambda n: generation_seconds(model, n), arguments)
        for n in arguments.parallel:
            parallel_seconds(model, arguments.each, arguments.generate // 2, n)
            _, seconds = parallel_seconds(model, arguments.each, arguments.generate // 2, n)
            rates[f"{n} sequences"] = n * (arguments.generate // 2) / seconds
    return rates


def _rate(n: int, seconds: Callable[[int], float], arguments: argparse.Namespace) -> float:
    seconds(n)
    return n / statistics.median(seconds(n) for _ in range(arguments.runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--prompt", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--generate", type=int, default=128, metavar="TOKENS")
    parser.add_argument("--parallel", type=int, nargs="+", default=[16, 64], metavar="SEQUENCES")
    parser.add_argument("--each", type=int, default=128, metavar="TOKENS", help="prompt of each sequence")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--activations", default="auto", help="setting vulkan.activations (half: float16)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for case in arguments.cases:
        results[case] = measure(arguments.model, CASES[case], arguments)
        print(f"{case}: " + ", ".join(f"{what} {rate:.0f}" for what, rate in results[case].items()), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
