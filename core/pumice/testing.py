"""A test kit for plugins: one operation of a backend, an architecture, a sampler, each against what defines it.

Each check raises AssertionError with what is wrong. They need nothing but what is installed with Pumice::

    from pumice.testing import check_operation, check_architecture, check_sampler

    check_operation(MyBackend(), lambda g, a: g.rms_norm(a["x"], g.weight("w"), 1e-5), {"x": x}, {"w": w})
    check_architecture("tiny.gguf", plugins=[my_plugin])
    check_sampler(MySampler(), n_vocab=100)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.api import load
from pumice.backend import Backend, Program
from pumice.config import load_config
from pumice.graph import N_TOKENS, ArraySource, Graph, GraphBuilder, Input, Target, Tensor, place, plan_memory
from pumice.registry import get_registry
from pumice.sampler import Candidates, Sampler, SamplerContext, Selector
from pumice.step import Batch, Limits, Step

Array = NDArray[Any]
Build = Callable[[GraphBuilder, Mapping[str, Tensor]], Tensor]

N_CTX = 256  # positions that checks of operations may use


def check_operation(
    backend: Backend,
    build: Build,
    activations: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
    *,
    kv_type: str = "f32",
    tolerance: float = 1e-5,
) -> None:
    """Compare one step of a small graph on ``backend`` with the NumPy backend.

    Args:
        backend: what is checked; it has to claim every node of the graph.
        build: takes a builder and the activations as tensors, gives the result, float32 or int32.
        activations: float32 or int32 ``[n_tokens, ...]``; the tokens are one sequence from its first position on.
        weights: arrays that ``g.weight(name)`` finds, as float32.
        kv_type: of caches.
        tolerance: largest difference, relative to the largest number of the result.
    """
    numpy = get_registry(load_config({})).backends["numpy"]()
    expected, actual = (_run(each, build, activations, weights or {}, kv_type) for each in (numpy, backend))
    assert actual.shape == expected.shape, f"shape {actual.shape}, not {expected.shape}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, not {expected.dtype}"
    assert np.isfinite(actual).all() or not np.isfinite(expected).all(), "numbers that are not finite"
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    difference = float(np.abs(actual.astype(np.float64) - expected).max(initial=0)) / scale
    assert difference <= tolerance, f"differs from NumPy's result by {difference:.2e} of its largest number"


def check_architecture(
    path: str | Path, plugins: Sequence[Any] = (), *, backend: str = "numpy", tolerance: float = 1e-4
) -> None:
    """Whether a model's logits are the same however its tokens come: in one batch, in parts, one by one.

    That finds an architecture that forgets ``g.output_ids``, positions, or a state. ``path``: a small GGUF file.
    """
    with load(path, backend=backend, kv_type="f32", n_ctx=64, n_batch=8, plugins=plugins) as model:
        ids = [(7 * i + 3) % model.n_vocab for i in range(20)]
        whole = model.logits(ids)
        assert whole.shape == (len(ids), model.n_vocab), f"logits of shape {whole.shape}"
        assert np.isfinite(whole).all(), "logits that are not finite"
        greedy = model.generate(ids[:12], max_tokens=4, temperature=0, ignore_eos=False)
    scale = float(np.abs(whole).max())
    with load(path, backend=backend, kv_type="f32", n_ctx=64, n_batch=1, plugins=plugins) as model:
        difference = float(np.abs(model.logits(ids) - whole).max()) / scale
        assert difference <= tolerance, f"token by token the logits differ by {difference:.2e} of the largest"
        again = model.generate(ids[:12], max_tokens=4, temperature=0, ignore_eos=False)
    assert greedy.tokens == again.tokens, f"token by token it generates {again.tokens}, not {greedy.tokens}"
    first = int(whole[11].argmax())
    assert not greedy.tokens or greedy.tokens[0] == first, f"it generates {greedy.tokens[0]}, its logits say {first}"


def check_sampler(sampler: Sampler, n_vocab: int = 64, *, n_tokens: int = 50, seed: int = 0) -> None:
    """Whether a sampler keeps its contract over many random steps: it leaves candidates, each of them a token.

    One that selects has to select one that is left.
    """
    random = np.random.default_rng(seed)
    sampler.start(SamplerContext(n_vocab=n_vocab, seed=seed))
    for _ in range(n_tokens):
        candidates = Candidates(random.normal(size=n_vocab).astype(np.float32))
        sampler.apply(candidates)
        assert len(candidates), "it leaves no candidates"
        assert len(candidates.ids) == len(candidates.logits), "it leaves ids and logits of different lengths"
        assert ((candidates.ids >= 0) & (candidates.ids < n_vocab)).all(), "it leaves ids that are no tokens"
        assert len(set(candidates.ids.tolist())) == len(candidates.ids), "it leaves a token twice"
        if isinstance(sampler, Selector):
            assert candidates.selected in candidates.ids, f"it selects {candidates.selected}, which is not left"
        sampler.accept(int(random.integers(n_vocab)))


def trace(g: GraphBuilder, build: Build, activations: Mapping[str, Array]) -> Tensor:
    """What ``build`` makes in layer 0 of inputs like the activations, float32 or int32 ``[n_tokens, ...]``."""
    inputs = {
        name: Input(name, (N_TOKENS, *array.shape[1:]), "i32" if array.dtype == np.int32 else "f32", builder=g)
        for name, array in activations.items()
    }
    with g.layer(0):
        return build(g, inputs)


def compile_graph(backend: Backend, graph: Graph, limits: Limits) -> Program:
    """The program of a graph. Raises AssertionError where the backend does not run it as a whole."""
    target = Target("backend", lambda node: backend.supports(node, limits))
    segments = place(graph, lambda layer: [target])
    assert len(segments) == 1, "the backend does not run the whole graph"
    segment = backend.rewrite(segments[0])
    return backend.compile(segment, plan_memory(segment, limits.sizes), limits)


def _run(
    backend: Backend, build: Build, activations: Mapping[str, Array], weights: Mapping[str, Array], kv_type: str
) -> Array:
    g = GraphBuilder({name: ArraySource(array) for name, array in weights.items()}, 1, N_CTX)
    result = trace(g, build, activations)
    graph, n_tokens = g.finish(result), len(next(iter(activations.values())))
    windows = {getattr(state, "window", 0) for state in graph.states} | {0}
    limits = Limits(N_CTX, N_CTX, N_CTX, 1, 32, dict.fromkeys(windows, N_CTX // 32), kv_type, graph.sizes)
    program = compile_graph(backend, graph, limits)
    rows = np.arange(n_tokens, dtype=np.int32)
    tables = {window: np.arange(N_CTX // 32, dtype=np.int32)[None] for window in windows}
    batch = Batch(rows, rows, rows, np.array([0, n_tokens], np.int32), np.zeros(1, np.int32), tables)
    inputs = {"tokens": rows, "positions": rows, "output_ids": rows, **activations}
    try:
        return np.array(program.run(Step(batch, inputs))[result.name])
    finally:
        program.close()
        backend.close()
