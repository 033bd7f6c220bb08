"""Measure the time per token in the sampler chain, and in llama.cpp's samplers if llama-cpp-python is installed.

    python bench/samplers.py [--n-vocab 128256] [--repeat 300]

Medians and 90th percentiles in microseconds. `peaked` logits follow Zipf's law, roughly like those of a language model;
`flat` ones are normal with a standard deviation of 3, which leaves thousands of probable tokens. llama.cpp's time
includes filling its array of candidates, Pumice's the copy of the logits: both happen for each token. Mirostat's cost
depends on its state, and thus on earlier draws.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "plugins")]

from pumice.sampler import Chain, SamplerContext  # noqa: E402
from pumice_samplers import SAMPLERS  # noqa: E402

PENALTIES = {"repeat_penalty": 1.1, "frequency_penalty": 0.1, "dry_multiplier": 0.8, "dry_sequence_breakers": []}
DEFAULT = ["top_k", "top_p", "min_p", "temperature", "dist"]
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
NEUTRAL = {
    "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
}

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "default chain": ({}, DEFAULT),
    "default, penalties and DRY on": (PENALTIES, ["penalties", "dry", *DEFAULT]),
    "default, top_k off": ({"top_k": 0}, DEFAULT[1:]),
    "temperature 0": ({"temperature": 0.0}, ["greedy"]),
    "dist alone": (OFF, ["dist"]),
    "logit_bias": (OFF | {"logit_bias": {5: -math.inf, 9: 2.0}}, ["logit_bias", "dist"]),
    "penalties": (OFF | {"repeat_penalty": 1.1}, ["penalties", "dist"]),
    "dry": (OFF | {"dry_multiplier": 0.8, "dry_sequence_breakers": []}, ["dry", "dist"]),
    "top_n_sigma": (OFF | {"top_n_sigma": 1.0}, ["top_n_sigma", "dist"]),
    "top_k": (OFF | {"top_k": 40}, ["top_k", "dist"]),
    "typical_p": (OFF | {"typical_p": 0.9}, ["typical_p", "dist"]),
    "top_p": (OFF | {"top_p": 0.95}, ["top_p", "dist"]),
    "min_p": (OFF | {"min_p": 0.05}, ["min_p", "dist"]),
    "xtc": (OFF | {"xtc_probability": 0.5, "xtc_threshold": 0.1}, ["xtc", "dist"]),
    "temperature": (OFF | {"temperature": 0.8}, ["temperature", "dist"]),
    "dynamic temperature": (OFF | {"dynatemp_range": 0.5}, ["temperature", "dist"]),
    "mirostat 1": (OFF | {"mirostat": 1}, ["mirostat_1"]),
    "mirostat 2": (OFF | {"mirostat": 2}, ["mirostat_2"]),
}
"""Non-default parameters, and the samplers that llama.cpp needs for them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-vocab", type=int, default=128_256)
    parser.add_argument("--repeat", type=int, default=300)
    args = parser.parse_args()
    try:
        from llama_samplers import Chain as LlamaChain
    except ImportError:
        LlamaChain = None

    rng = np.random.default_rng(0)
    zipf = -1.4 * np.log(np.arange(1, args.n_vocab + 1))
    inputs = {
        "peaked": (rng.permutation(zipf) + rng.normal(0, 0.5, args.n_vocab)).astype(np.float32),
        "flat": rng.normal(0, 3, args.n_vocab).astype(np.float32),
    }
    history = rng.integers(0, 200, 100).tolist()
    print(f"{args.n_vocab} tokens, us per token: median (90th percentile)")
    print(f"{'':31}" + "".join(f"{name:>36}" for name in inputs))
    print(f"{'':31}" + f"{'pumice':>18}{'llama.cpp':>18}" * len(inputs))
    for label, (params, names) in CASES.items():
        cells = []
        for logits in inputs.values():
            chain = Chain.build(SAMPLERS, list(SAMPLERS), params | {"seed": 1}, SamplerContext(args.n_vocab))
            cells.append(measure(chain, logits, history, args.repeat))
            if LlamaChain is None:
                cells.append("-")
                continue
            everything = NEUTRAL | {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05} | params
            peer = LlamaChain(names, everything, args.n_vocab)
            cells.append(measure(peer, logits, history, args.repeat))
            peer.close()
        print(f"{label:31}" + "".join(f"{cell:>18}" for cell in cells))


def measure(chain: Any, logits: np.ndarray, history: list[int], repeat: int) -> str:
    for token in history:
        chain.accept(token)
    times = [seconds(lambda: chain.accept(chain.sample(logits))) for _ in range(repeat)]
    return f"{statistics.median(times) * 1e6:.0f} ({statistics.quantiles(times, n=10)[-1] * 1e6:.0f})"


def seconds(function: Callable[[], None]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
