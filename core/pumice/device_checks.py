"""Check a device's results against NumPy's, and time products: ``python -m pumice.device_checks BACKEND INDEX``.

Results are JSON lines on standard output, so that those before a crash of a driver are known.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN
from pumice.backend import Backend
from pumice.backend.step import Batch
from pumice.config import load_config
from pumice.engine.placement.backends import configured_backend, unavailable
from pumice.engine.placement.overrides import DeviceName
from pumice.engine.placement.placed import PlacedGraph
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.errors import BackendError, GGUFError, PumiceError
from pumice.gguf import GGMLType, TensorSource, block_size, dequantize, row_bytes
from pumice.graph import N_TOKENS, BlocksSource, GraphBuilder, Segment, Tensor
from pumice.registry import get_registry
from pumice.testing import Build, difference_from_numpy, is_supported

N_ROWS, N_COLUMNS = 96, 512  # of the matrices of products
BATCHES = (1, 4, 20, 70)  # tokens of a step: decode, a few sequences, many sequences, a prompt
N_MANY_ROWS = 4096  # of matrices whose products with several sequences occupy a large device
MANY_BATCHES = (12, 20, 40, 64)
N_EXPERTS, N_USED = 8, 2
FEW_TYPES = (GGMLType.F16, GGMLType.Q4_0, GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.MXFP4)
MOST_DIFFERENCE = 0.02  # of the largest value: activations may be rounded to 8 bits
_LARGEST, _SMALLEST = 4.0, 1e-3  # a block's largest value
_BLOCKS_AT_ONCE = 20_000
_WIDTH = 1024  # columns of the matrices whose products are timed
_MEASURED_ROWS = (1, 2, 4, 8, 9, 12, 16, 24, 32, 48, 64, 128)  # vectors; kernels change at 9 and 65
_REPEATS = 100  # of a timed product
_MEASURED_TYPES = (GGMLType.Q4_0, GGMLType.Q4_K)

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """An operation with its inputs, for ``difference_from_numpy``."""

    name: str
    build: Build
    activations: Mapping[str, NDArray[Any]]
    weights: Mapping[str, Array | TensorSource]
    kv_type: str = "f32"


@dataclass(frozen=True)
class DeviceCheck:
    """The result of a case.

    Attributes:
        name: the operation, its types and number of tokens.
        difference: from NumPy's result, relative to the largest value; None if it did not run.
        kernels: those that computed it, with their constants, where the backend names them.
        problem: why it failed, or that the difference is too large; empty for an operation left to other backends.
    """

    name: str
    difference: float | None
    problem: str = ""
    kernels: Sequence[str] = ()


def open_backend(name: str, index: int) -> Backend:
    """Return a backend on its device ``index``, with the options of the configuration. Raises PumiceError."""
    config = load_config()
    registry = get_registry(config)
    if registry.backends.find(name).offload:
        config = load_config({"devices": [str(DeviceName(name, index))]})
    if reason := unavailable(registry, name):
        raise BackendError(f"backend {name}: {reason}")
    return configured_backend(registry, config, name)


def check_cases(make: Callable[[], Backend], cases: Iterator[Case]) -> Iterator[DeviceCheck]:
    """Yield the result of each case on a backend of its own."""
    for case in cases:
        backend = make()
        try:
            difference = _difference(backend, case)
        except (AssertionError, PumiceError, ValueError, RuntimeError, MemoryError) as error:
            yield DeviceCheck(case.name, None, " ".join(str(error).split()) or type(error).__name__, backend.kernels())
        else:
            is_wrong = difference is not None and not difference <= MOST_DIFFERENCE  # NaN is wrong
            wrong = f"more than {MOST_DIFFERENCE} of the largest value" if is_wrong else ""
            yield DeviceCheck(case.name, difference, wrong, backend.kernels())


def _difference(backend: Backend, case: Case) -> float | None:
    """Return the difference from NumPy's result; None for an operation that the backend leaves to others."""
    if not is_supported(backend, case.build, case.activations, case.weights, kv_type=case.kv_type):
        backend.close()
        return None
    return difference_from_numpy(backend, case.build, case.activations, case.weights, kv_type=case.kv_type)


def all_cases() -> Iterator[Case]:
    """Yield the operations of a language model: products of each type, norms, attention, experts, states, others."""
    yield from _dense_cases()
    yield from _many_row_cases()
    for n in BATCHES:
        yield from _expert_cases(n)
        yield from _recurrent_cases(n)
        yield from _small_cases(n)


def _dense_cases() -> Iterator[Case]:
    for type in GGMLType:
        if (blocks := random_blocks(type)) is None:
            continue
        weights = {"w": BlocksSource(blocks, type)}
        for n in BATCHES:
            activations = {"x": _normal(n, N_COLUMNS)}
            yield Case(
                f"linear {type.name}, {_tokens(n)}", lambda g, a: g.linear(a["x"], g.weight("w")), activations, weights
            )
    for n in BATCHES:
        x = {"x": _normal(n, N_COLUMNS)}
        yield Case(
            f"rms_norm, {_tokens(n)}",
            lambda g, a: g.rms_norm(a["x"], g.weight("w"), 1e-5),
            x,
            {"w": _normal(N_COLUMNS)},
        )
        yield Case(f"softmax, {_tokens(n)}", lambda g, a: g.softmax(a["x"]), x, {})
        yield Case(f"silu, {_tokens(n)}", lambda g, a: g.silu(a["x"]), x, {})
        for kv_type in ("f32", "f16", "q8_0"):
            rows = {name: _normal(n, n_head, 64) for name, n_head in (("q", 8), ("k", 2), ("v", 2))}
            name = f"attention {kv_type}, {_tokens(n)}"
            yield Case(name, lambda g, a: g.attention(a["q"], a["k"], a["v"], scale=0.125), rows, {}, kv_type)


def _many_row_cases() -> Iterator[Case]:
    """Yield products of several sequences with matrices of many rows."""
    for type in FEW_TYPES:
        if (blocks := random_blocks(type)) is None:
            continue
        rows = np.resize(blocks, (N_MANY_ROWS, blocks.shape[1]))
        for n in MANY_BATCHES:
            yield Case(
                f"linear {type.name} with {N_MANY_ROWS} rows, {_tokens(n)}",
                lambda g, a: g.linear(a["x"], g.weight("w")),
                {"x": _normal(n, N_COLUMNS)},
                {"w": BlocksSource(rows, type)},
            )


def _expert_cases(n: int) -> Iterator[Case]:
    """Yield the choice of experts, and products with those chosen, for ``n`` tokens."""
    logits = {"x": _normal(n, N_EXPERTS)}
    for gate in ("softmax", "sigmoid"):

        def routed(g: GraphBuilder, a: Mapping[str, Tensor], gate: str = gate) -> Tensor:
            ids = g.expert_ids(a["x"], None, n_used=N_USED, gate=gate)
            return g.expert_weights(a["x"], ids, gate=gate, normalize=True)

        yield Case(f"route by {gate}, {_tokens(n)}", routed, logits, {})
    ids = np.argsort(logits["x"])[:, -N_USED:].astype(np.int32)
    activations: dict[str, NDArray[Any]] = {"x": _normal(n, N_COLUMNS), "ids": ids}
    for type in FEW_TYPES:
        if (blocks := random_blocks(type)) is None:
            continue
        stacked = np.stack([np.roll(blocks, i, axis=0) for i in range(N_EXPERTS)])
        yield Case(
            f"experts {type.name}, {_tokens(n)}",
            lambda g, a: g.mul_mat_id(a["x"], g.weight("w"), a["ids"]),
            activations,
            {"w": BlocksSource(stacked, type)},
        )


def _recurrent_cases(n: int) -> Iterator[Case]:
    """Yield the operations that keep a state of each sequence, for ``n`` tokens."""
    width, n_state, n_heads = 64, 16, 4
    x, heads = _normal(n, width), {name: _normal(n, n_heads, 32) for name in ("q", "k", "v")}
    yield Case(
        f"conv1d, {_tokens(n)}",
        lambda g, a: g.conv1d(a["x"], g.weight("w"), g.weight("b")),
        {"x": x},
        {"w": _normal(width, 4), "b": _normal(width)},
    )
    yield Case(
        f"ssm_scan, {_tokens(n)}",
        lambda g, a: g.ssm_scan(a["x"], a["dt"], g.weight("a"), a["b"], a["c"], g.weight("d")),
        {"x": x, "dt": np.abs(x) / 4, "b": _normal(n, n_state), "c": _normal(n, n_state)},
        {"a": -np.abs(_normal(width, n_state)), "d": _normal(width)},
    )
    gates: NDArray[Any] = 1 / (1 + np.exp(_normal(n, n_heads)))
    keys: NDArray[Any] = heads["k"] / np.sqrt(np.square(heads["k"]).sum(axis=-1, keepdims=True))
    yield Case(
        f"linear_attention, {_tokens(n)}",
        lambda g, a: g.linear_attention(a["q"], a["k"], a["v"], a["decay"], a["beta"]),
        {"q": heads["q"], "k": keys, "v": heads["v"], "decay": gates, "beta": gates},
        {},
    )


def _small_cases(n: int) -> Iterator[Case]:
    """Yield what lies between products: rotations, rows of tables, norms, formulas and parts of values."""
    heads, x = {"x": _normal(n, 4, 64)}, {"x": _normal(n, N_COLUMNS), "y": _normal(n, 2, N_COLUMNS)[:, 0]}
    freqs = tuple(10000.0 ** (-i / 32) for i in range(32))
    for order, neox in (("halves", True), ("pairs", False)):

        def turned(g: GraphBuilder, a: Mapping[str, Tensor], neox: bool = neox) -> Tensor:
            return g.rope(a["x"], g.positions, freqs=freqs, neox=neox)

        yield Case(f"rope of {order}, {_tokens(n)}", turned, heads, {})
    ids = {"ids": np.arange(n, dtype=np.int32) * 7 % N_ROWS}
    for type in FEW_TYPES:
        if (blocks := random_blocks(type)) is not None:
            weights = {"w": BlocksSource(blocks, type)}
            name = f"embedding {type.name}, {_tokens(n)}"
            yield Case(name, lambda g, a: g.embedding(g.weight("w"), a["ids"]), ids, weights)
    affine = {"w": _normal(N_COLUMNS), "b": _normal(N_COLUMNS)}
    builds: dict[str, Build] = {
        "layer_norm": lambda g, a: g.layer_norm(a["x"], g.weight("w"), g.weight("b"), 1e-5),
        "formula": lambda g, a: g.gelu(a["x"]) * g.sigmoid(a["y"]) + g.weight("w"),
        "silu_mul": lambda g, a: g.silu_mul(a["x"], a["y"]),
        "concat": lambda g, a: g.concat(a["x"], a["y"]),
        "slice": lambda g, a: g.slice(a["x"], 64, 320),
        "sum": lambda g, a: g.sum(a["x"], -1, keepdims=True),
        "top_k": lambda g, a: g.top_k(a["x"], 8),
    }
    for operation, build in builds.items():
        yield Case(f"{operation}, {_tokens(n)}", build, x, affine)


@functools.cache
def random_blocks(type: GGMLType) -> NDArray[np.uint8] | None:
    """Return a matrix of random blocks, uint8 ``[N_ROWS, bytes per row]``; None for types that are no matrices' types.

    Blocks of random bytes are left out if their values are very large, very small or not finite.
    """
    if N_COLUMNS % block_size(type):
        return None
    random, n_bytes = np.random.default_rng(type), row_bytes(type, block_size(type))
    n_blocks = N_ROWS * N_COLUMNS // block_size(type)
    usable = np.empty((0, n_bytes), np.uint8)
    for _ in range(100):
        blocks = random.integers(0, 256, (_BLOCKS_AT_ONCE, n_bytes), np.uint8)
        try:
            largest = np.abs(dequantize(blocks, type)).max(axis=1)
        except GGUFError:
            return None
        usable = np.concatenate([usable, blocks[(largest > _SMALLEST) & (largest < _LARGEST)]])
        if len(usable) >= n_blocks:
            return usable[:n_blocks].reshape(N_ROWS, -1)
    return None


def _normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def _tokens(n: int) -> str:
    return "1 token" if n == 1 else f"{n} tokens"


def _product_seconds(name: str, backend: Backend, type: GGMLType) -> dict[int, float]:
    """Return the shortest time of a product with a square matrix of zeros, in seconds, by its number of vectors."""
    blocks = np.zeros((_WIDTH, row_bytes(type, _WIDTH)), np.uint8)
    g = GraphBuilder({"timed.weight": BlocksSource(blocks, type)}, 1, _MEASURED_ROWS[-1])
    x = g.input("x", (N_TOKENS, _WIDTH))
    g.output("y", g.linear(x, g.weight("timed.weight")))
    graph = g.finish()
    limits = make_limits({MAIN: graph}, EngineSizes(_MEASURED_ROWS[-1], _MEASURED_ROWS[-1], 1, "f16"))
    segment = Segment(name, graph.nodes, [x], list(graph.outputs.values()))
    placed = PlacedGraph(graph, [segment], {name: backend}, limits)
    placed.compile()
    try:
        return {n: min(_seconds(placed, n) for _ in range(_REPEATS)) for n in _MEASURED_ROWS}
    finally:
        placed.close()


def _seconds(placed: PlacedGraph, n_rows: int) -> float:
    rows, starts = np.arange(n_rows, dtype=np.int32), np.array([0, n_rows], np.int32)
    batch = Batch(rows, rows, rows, starts, rows[:1], {}, {"x": _normal(n_rows, _WIDTH)})
    begun = time.perf_counter()
    placed.submit(batch).outputs()
    return time.perf_counter() - begun


def main(name: str, index: int) -> None:
    """Write the device's facts, the result of each check, and times of products by their vectors."""

    def write(kind: str, value: object) -> None:
        print(json.dumps({kind: value}, default=list), flush=True)

    backend = open_backend(name, index)
    write("facts", backend.facts())
    backend.close()
    cases = list(all_cases())
    write("n_checks", len(cases))
    for check in check_cases(lambda: open_backend(name, index), iter(cases)):
        write("check", asdict(check))
    seconds = {}
    for type in _MEASURED_TYPES:
        backend = open_backend(name, index)
        seconds[type.name] = _product_seconds(name, backend, type)
        backend.close()
    write("product_seconds", seconds)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except PumiceError as error:
        raise SystemExit(str(error)) from None
