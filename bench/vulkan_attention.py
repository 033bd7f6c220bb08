"""Measure the Vulkan backend's attention: ``python bench/vulkan_attention.py [--sweep] [--json FILE]``.

Shapes are those of Llama 1B and 8B. Sixteen dependent layers, each with its own cache, attend with a single token at
several depths, and with a prompt. Prints the time of each kernel in one layer in microseconds of the device's clock;
with ``--sweep`` also the best of many workgroup sizes.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "plugins")]

from pumice.backend.step import Batch, Limits, Step  # noqa: E402
from pumice.errors import BackendError  # noqa: E402
from pumice.graph import GraphBuilder, Target, Tensor, place, plan_memory  # noqa: E402
from pumice.plugin.nn import Rope  # noqa: E402
from pumice_vulkan import VulkanBackend  # noqa: E402
from pumice_vulkan.lower import attention, attention_decode  # noqa: E402
from pumice_vulkan.tuning import (  # noqa: E402
    LANES_ATTENTION,
    LANES_UNIT,
    AttentionShape,
    DecodeShape,
    LanesAttentionShape,
    attention_shape,
    decode_shape,
)

SHAPES = {"1b": (32, 8, 64), "8b": (32, 8, 128)}  # query heads, key heads, head dimension
N_LAYER, BLOCK_SIZE = 16, 32
BEST = 6
BESIDE = ("rope", "kv_store.f16", "kv_store.q8_0", "kv_store.q4_0", "kv_store.f32")


class Layers:
    """A program of attention layers, and a step: ``n_tokens`` of one sequence, or one of each of ``n_seqs``."""

    def __init__(
        self, backend: VulkanBackend, shape: str, n_tokens: int, depth: int, kv_type: str, n_seqs: int = 1
    ) -> None:
        n_head, n_head_kv, dim = SHAPES[shape]
        n_ctx = max(640, depth + n_tokens + 127)
        n_blocks, n_tokens = -(-n_ctx // BLOCK_SIZE), max(n_tokens, n_seqs)
        limits = Limits(n_ctx, n_tokens, n_seqs, n_seqs, BLOCK_SIZE, {0: n_blocks * n_seqs}, kv_type)
        g = GraphBuilder({}, N_LAYER, n_ctx)
        q, k, v = (
            Tensor(name, ("n_tokens", n, dim), builder=g)
            for name, n in zip("qkv", (n_head, n_head_kv, n_head_kv), strict=True)
        )
        rope = Rope(n_rot=dim, neox=False, freq_base=500000.0)
        self._inputs = {
            t.name: np.random.default_rng(0).standard_normal((n_tokens, *t.shape[1:])).astype("f4") for t in (q, k, v)
        }
        for layer in range(N_LAYER):
            with g.layer(layer):
                turned = [rope(g, x) for x in (q, k)]
                q = g.attention(*turned, v, scale=dim**-0.5)
        (placed,) = place(g.finish(q), lambda layer: [Target("vulkan", lambda node: backend.supports(node, limits))])
        segment = backend.rewrite(placed)
        self._program: Any = backend.compile(segment, plan_memory(segment, limits.sizes), limits)
        tables = np.random.default_rng(1).permutation(n_blocks * n_seqs).astype(np.int32)
        rows, of_seq = np.arange(n_tokens, dtype=np.int32), n_tokens // n_seqs
        self._batch = Batch(
            tokens=rows,
            positions=rows % of_seq + depth,
            output_ids=rows[:n_seqs],
            seq_starts=np.arange(0, n_tokens + 1, of_seq, dtype=np.int32),
            slots=np.arange(n_seqs, dtype=np.int32),
            block_tables={0: tables.reshape(n_seqs, -1)},
        )

    def times(self, warm_up: float, runs: int = 7) -> dict[str, float]:
        """Return the microseconds of each kernel in one layer, the median of some runs."""
        steps = {"positions": self._batch.positions}
        end = time.perf_counter() + warm_up
        while True:  # waits until the device's clocks are up
            self._program.run(Step(self._batch, {**steps, **self._inputs}))
            if time.perf_counter() > end:
                break
        times: dict[str, list[float]] = {}
        for _ in range(runs):
            spans: dict[str, float] = {}
            for timing in self._program.profile():
                spans[timing.name] = spans.get(timing.name, 0.0) + timing.microseconds
            for name, span in spans.items():
                times.setdefault(name, []).append(span / N_LAYER)
        return {name: float(np.median(spans)) for name, spans in times.items()}

    def close(self) -> None:
        self._program.close()


def measure(backend: VulkanBackend, chooser: str, candidates: list[Any], *arguments: Any) -> list[Any]:
    """Time each kernel with each candidate, which replaces the result of the function ``chooser``.

    All pipelines are created before the first is timed, after a warm-up that raises the device's clocks.
    """
    timed = []
    for measuring in (False, True):
        timed.clear()
        for candidate in candidates:
            seconds = 0.0 if not measuring else 0.05 if timed else 0.5
            module = attention_decode if chooser == "decode_shape" else attention
            if isinstance(candidate, LanesAttentionShape):
                attention.LANES_ATTENTION = dict.fromkeys(((64, 64), (128, 128)), candidate)
            else:
                attention.LANES_ATTENTION = {}
                setattr(module, chooser, lambda *_, candidate=candidate: candidate)
            try:
                layers = Layers(backend, *arguments)
                timed.append((layers.times(seconds), candidate))
            except BackendError as error:
                print(f"  {candidate}: {error}", file=sys.stderr)
                continue
            layers.close()
    return timed


def decode_candidates(default: DecodeShape) -> Iterator[DecodeShape]:
    for threads, unroll, rounds, heads, parts in itertools.product(
        (128, 256, 512), (1, 2, 4), (1, 2), (1, 2, 4), (4, 8)
    ):
        shape = dataclasses.replace(
            default, threads=threads, unroll=unroll, rounds=rounds, heads=heads, max_parts=parts * heads
        )
        if 32 <= shape.chunk * rounds <= 256:
            yield shape


def compact(shape: object) -> str:
    return "/".join(str(value) for value in dataclasses.astuple(shape))  # type: ignore[call-overload]


def crowd_candidates(default: DecodeShape) -> Iterator[DecodeShape]:
    """Yield shapes for many sequences."""
    for threads, unroll, heads, parts, late in itertools.product((64, 128), (2, 4, 8), (2, 4), (1, 4), (False, True)):
        yield dataclasses.replace(default, threads=threads, unroll=unroll, heads=heads, max_parts=parts, late=late)


def decode(
    backend: VulkanBackend, shape: str, depths: list[int], kv_type: str, sweep: bool, n_seqs: int = 1
) -> list[Any]:
    n_head, n_head_kv, dim = SHAPES[shape]
    device = backend._open()[0].device
    results: list[Any] = []
    for depth in depths:
        default = decode_shape(device, dim, n_head, n_head_kv, max(640, depth + 128), n_seqs)
        candidates = [default, *(crowd_candidates(default) if sweep and n_seqs > 1 else ())]
        for candidate in decode_candidates(default) if sweep and n_seqs == 1 else ():
            n_parts = -(-max(640, depth + 128) // (candidate.chunk * candidate.rounds))
            if (
                n_parts >= candidate.max_parts or candidate.max_parts == 4 * candidate.heads
            ):  # else it has as many parts as with fewer
                candidates.append(candidate)
        times = measure(backend, "decode_shape", candidates, shape, 1, depth, kv_type, n_seqs)
        timed = [(sum(spans.values()), candidate) for spans, candidate in times]
        show(f"{shape} {kv_type} one token of {n_seqs} at depth {depth:5}", timed)
        about = {"shape": shape, "sequences": n_seqs, "depth": depth, "kv_type": kv_type}
        results.append({**about, "timed": astuples(timed)})
    return results


def prompt(backend: VulkanBackend, shape: str, n_tokens: int, depth: int, kv_type: str, sweep: bool) -> Any:
    dim = SHAPES[shape][2]
    shared = backend._open()[0]
    in_lanes = LANES_ATTENTION.get((dim, dim)) if shared.sums_by_rows is not None else None
    unit = shared.cooperative.m if shared.cooperative else LANES_UNIT
    candidates: list[Any] = [in_lanes or attention_shape(shared.device, dim, dim, unit)]
    most = shared.device.threadgroup_memory_bytes
    if sweep and shared.cooperative:
        shapes = [AttentionShape(*shape) for shape in itertools.product((1, 2, 4, 8), (32, 64, 128))]
        candidates += [shape for shape in shapes if shape.shared_bytes(dim, dim, unit) <= most]
    if sweep and shared.sums_by_rows is not None:
        candidates += [LanesAttentionShape(*shape) for shape in itertools.product((4, 8), (1, 2), (32, 64))]
    times = measure(backend, "attention_shape", candidates, shape, n_tokens, depth, kv_type)
    print(f"{shape}: " + ", ".join(f"{name} {span:.1f}" for name, span in times[0][0].items()))
    timed = [(span, candidate) for spans, candidate in times for name, span in spans.items() if name not in BESIDE]
    show(f"{shape} {kv_type} {n_tokens} tokens at depth {depth:5}", timed)
    return {"shape": shape, "n_tokens": n_tokens, "depth": depth, "kv_type": kv_type, "timed": astuples(timed)}


def show(label: str, timed: list[Any]) -> None:
    if timed:
        best = sorted(timed[1:], key=lambda item: item[0])[:BEST]
        others = ", ".join(f"{compact(shape)} {us:.2f}" for us, shape in best)
        print(
            f"{label}: {timed[0][0]:8.2f} us ({compact(timed[0][1]) if timed[0][1] else 'tiles'})  {others}", flush=True
        )


def astuples(timed: list[Any]) -> list[Any]:
    return [[round(us, 3), shape and dataclasses.astuple(shape)] for us, shape in timed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", action="store_true", help="try many workgroup sizes, not only those that models use")
    parser.add_argument("--shapes", default="1b,8b")
    parser.add_argument("--depths", default="0,100,512,2048,8192", help="depths of a single token")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--sequences", type=int, default=1, help="sequences of single tokens; with several no prompt")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--driver", default="native")
    parser.add_argument("--json", type=Path, help="write all measurements to a file")
    arguments = parser.parse_args()
    depths = [int(depth) for depth in arguments.depths.split(",")]
    backend = VulkanBackend(VulkanBackend.Options(driver=arguments.driver, device=arguments.device))
    shared = backend._open()[0]
    memory = shared.device.threadgroup_memory_bytes
    print(f"{shared.device.name}; matrix units: {shared.cooperative}; threadgroup memory: {memory}")
    print("decode: threads/lanes/each/rounds/heads/parts/late; prompt: subgroups/columns", flush=True)
    report: dict[str, Any] = {"device": shared.device.name, "decode": [], "prompt": []}
    for shape in arguments.shapes.split(","):
        for depth in (0, 2048) if arguments.sequences == 1 else ():
            report["prompt"].append(prompt(backend, shape, arguments.tokens, depth, arguments.kv_type, arguments.sweep))
        report["decode"] += decode(backend, shape, depths, arguments.kv_type, arguments.sweep, arguments.sequences)
        if arguments.json:
            arguments.json.write_text(json.dumps(report) + "\n")
    backend.close()


if __name__ == "__main__":
    main()
