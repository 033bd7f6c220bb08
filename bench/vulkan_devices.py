"""Compare one GPU with several: ``python bench/vulkan_devices.py MODEL.gguf [--devices 0 1] [--json FILE]``.

First the model runs on the first of ``--devices`` alone, then its layers are divided among all. Prints tokens/s of
generation and of a prompt of several chunks (the median of some runs after a warm-up), and the ratio several / one.
``--same`` opens the first device repeatedly, to measure the cost of crossing devices on a machine with a single one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "plugins")]

import pumice  # noqa: E402
from pumice.evaluate.speed import generation_seconds, prompt_seconds  # noqa: E402


def measure(path: str, devices: list[int], arguments: argparse.Namespace) -> dict[str, float]:
    """Return tokens/s by measurement."""
    config = {"vulkan": {"driver": arguments.driver, "devices": devices}}
    options = {"n_ctx": arguments.prompt + 64, "n_batch": arguments.chunk, "config": config}
    with pumice.load(path, backend="vulkan", **options) as model:
        print(f"devices {devices}: {model.backends}, memory {model.memory}", file=sys.stderr)
        generation_seconds(model, arguments.generate)
        prompt_seconds(model, arguments.prompt)
        generation = statistics.median(generation_seconds(model, arguments.generate) for _ in range(arguments.runs))
        prompt = statistics.median(prompt_seconds(model, arguments.prompt) for _ in range(arguments.runs))
    return {
        f"generation of {arguments.generate}": arguments.generate / generation,
        f"prompt of {arguments.prompt} in chunks of {arguments.chunk}": arguments.prompt / prompt,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="GGUF files")
    parser.add_argument("--devices", type=int, nargs="+", default=[0, 1], help="numbers from `pumice devices`")
    parser.add_argument("--same", action="store_true", help="use the first device in place of each")
    parser.add_argument("--driver", default="auto")
    parser.add_argument("--generate", type=int, default=128, metavar="TOKENS")
    parser.add_argument("--prompt", type=int, default=4096, metavar="TOKENS")
    parser.add_argument("--chunk", type=int, default=512, metavar="TOKENS", help="n_batch")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    arguments = parser.parse_args()
    one, several = arguments.devices[:1], arguments.devices
    several = one * len(several) if arguments.same else several
    results = {}
    for path in arguments.models:
        alone, shared = measure(path, one, arguments), measure(path, several, arguments)
        results[path] = {"one": alone, "several": shared}
        for what in alone:
            ratio = shared[what] / alone[what]
            print(f"{Path(path).stem}, {what}: {alone[what]:.0f} on one, {shared[what]:.0f} on several, {ratio:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
