"""A test kit for plugins: one operation of a backend, an architecture, a sampler, a proposer.

Each check raises AssertionError with the problem, and needs no packages other than Pumice's::

    from pumice.testing import check_operation, check_architecture, check_sampler

    check_operation(MyBackend(), lambda g, a: g.rms_norm(a["x"], g.weight("w"), 1e-5), {"x": x}, {"w": w})
    check_backend(MyBackend(), "tiny.gguf")
    check_architecture("tiny.gguf", plugins=[my_plugin])
    check_sampler(MySampler(), n_vocab=100)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN
from pumice.backend import Backend, Program
from pumice.backend.step import Batch, Limits, Step
from pumice.config import bundled_config, load_config
from pumice.gguf import GGUFFile, TensorSource
from pumice.graph import (
    N_TOKENS,
    ArraySource,
    Graph,
    GraphBuilder,
    Input,
    Node,
    Segment,
    State,
    Target,
    Tensor,
    Weight,
    place,
    plan_memory,
)
from pumice.local_engine import load_model
from pumice.model_graphs import make_architecture
from pumice.proposers import Proposer, ProposerContext
from pumice.registry import get_registry
from pumice.sampler import Candidates, Sampler, SamplerContext, Selector
from pumice.tracing import trace as trace_file

Array = NDArray[Any]
Build = Callable[[GraphBuilder, Mapping[str, Tensor]], Tensor]

N_CTX = 256  # positions that checks of operations may use


def check_operation(
    backend: Backend,
    build: Build,
    activations: Mapping[str, Array],
    weights: Mapping[str, Array | TensorSource] | None = None,
    *,
    kv_type: str = "f32",
    tolerance: float = 1e-5,
) -> None:
    """Compare one step of a small graph on ``backend`` with the NumPy backend.

    Args:
        backend: backend to check, which must support every node of the graph.
        build: returns the result, float32 or int32, for a builder and the activations as tensors.
        activations: float32 or int32 ``[n_tokens, ...]``, for one sequence from its first position on.
        weights: float32 arrays or sources of other types, available by ``g.weight(name)``.
        kv_type: type of caches.
        tolerance: maximum difference, relative to the largest value of the result.
    """
    difference = difference_from_numpy(backend, build, activations, weights, kv_type=kv_type)
    assert difference <= tolerance, f"differs from NumPy's result by {difference:.2e} of its largest number"


def difference_from_numpy(
    backend: Backend,
    build: Build,
    activations: Mapping[str, Array],
    weights: Mapping[str, Array | TensorSource] | None = None,
    *,
    kv_type: str = "f32",
) -> float:
    """Return the maximum difference of one step from the NumPy backend's result, relative to its largest value.

    The arguments are those of ``check_operation``.
    """
    numpy = get_registry(load_config({})).backends["numpy"]()
    expected, actual = (_run(item, build, activations, weights or {}, kv_type) for item in (numpy, backend))
    assert actual.shape == expected.shape, f"shape {actual.shape}, not {expected.shape}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, not {expected.dtype}"
    assert np.isfinite(actual).all() or not np.isfinite(expected).all(), "numbers that are not finite"
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    return float(np.abs(actual.astype(np.float64) - expected).max(initial=0)) / scale


def check_backend(backend: Backend, path: str | Path, plugins: Sequence[Any] = (), *, tolerance: float = 1e-4) -> None:
    """Compare each operation of a model on ``backend`` with the NumPy backend, both on the values of the latter.

    Raises AssertionError that names the backend and the first operation that fails, has another result, or one that is
    not finite. Operations that the backend does not support are left out, and those that read another one's cache.

    Args:
        backend: backend to check.
        path: a small GGUF file, of which a prompt of 16 tokens is computed.
        plugins: plugins that are not installed, such as one with the architecture.
        tolerance: maximum difference, relative to the largest value of a result; 2e-2 for
            activations of 8 bits.
    """
    registry = get_registry(bundled_config({}), plugins)
    with GGUFFile.open(path) as file:
        graph = trace_file(file, make_architecture(file, registry), N_CTX)[MAIN]
        reference = registry.backends["numpy"]()
        limits = _limits(graph, "f32")
        rows = np.arange(16, dtype=np.int32)
        batch = _batch(rows, limits)
        brought = {"tokens": rows, "positions": rows, "output_ids": rows}
        values: dict[Tensor, Array] = {
            tensor: brought[name] if tensor.fill is None else tensor.fill(batch)
            for name, tensor in graph.inputs.items()
            if isinstance(tensor, Input)
        }
        values |= _run_segment(reference, [*_run_by(reference, graph.nodes, limits)], values, batch, limits)
        stored = set[State]()
        for node in _run_by(backend, graph.nodes, limits):
            shares, stored = node.state in stored, stored | ({node.state} if node.state else set())
            known = all(isinstance(tensor, Weight) or tensor in values for tensor in node.operands())
            if shares or not known or not backend.supports(node, limits):
                continue
            weights = ", ".join(tensor.name for tensor in node.operands() if isinstance(tensor, Weight))
            where = f"{type(backend).__name__}, layer {node.layer}: {node.op}" + (f" of {weights}" if weights else "")
            try:
                result = _run_segment(backend, [node], values, batch, limits)[node.output]
            except Exception as error:
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
            expected = values[node.output]
            assert np.isfinite(result).all() or not np.isfinite(expected).all(), f"{where}: numbers that are not finite"
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            difference = float(np.abs(result.astype(np.float64) - expected).max(initial=0)) / scale
            assert difference <= tolerance, f"{where}: differs from NumPy's result by {difference:.2e} of its largest"


def _run_by(backend: Backend, nodes: Iterable[Node], limits: Limits) -> Iterator[Node]:
    """Yield the nodes, and the parts of composite ones that the backend does not support."""
    for node in nodes:
        if node.expansion and not backend.supports(node, limits):
            yield from _run_by(backend, node.expansion, limits)
        else:
            yield node


def _run_segment(
    backend: Backend, nodes: Sequence[Node], values: Mapping[Tensor, Array], batch: Batch, limits: Limits
) -> dict[Tensor, Array]:
    """Return the result of each node, computed from ``values`` as one segment."""
    made = {node.output: None for node in nodes}
    inputs = dict.fromkeys(
        tensor for node in nodes for tensor in node.operands() if tensor not in made and not isinstance(tensor, Weight)
    )
    segment = Segment("checked", list(nodes), inputs=[*inputs], outputs=[*made])
    program = backend.compile(segment, plan_memory(segment, limits.sizes), limits)
    try:
        results = program.run(Step(batch, {tensor.name: values[tensor] for tensor in inputs}))
        return {tensor: np.array(results[tensor.name]) for tensor in made}
    finally:
        program.close()


def check_architecture(
    path: str | Path, plugins: Sequence[Any] = (), *, backend: str = "numpy", tolerance: float = 1e-4
) -> None:
    """Check that a model's logits do not depend on how its tokens are batched: at once, in parts, or one by one.

    This detects architectures that ignore ``g.output_ids``, positions or states. ``path``: a small GGUF file. Samplers
    and other settings are the package's own, whatever configuration files say.
    """
    options = {"backend": backend, "kv_type": "f32", "n_ctx": 64}
    with load_model(path, bundled_config({**options, "n_batch": 8}), plugins=plugins) as model:
        ids = [(7 * i + 3) % model.n_vocab for i in range(20)]
        expected = model.logits(ids)
        assert expected.shape == (len(ids), model.n_vocab), f"logits of shape {expected.shape}"
        assert np.isfinite(expected).all(), "logits that are not finite"
        greedy = model.generate(ids[:12], max_tokens=4, temperature=0, ignore_eos=False)
    scale = float(np.abs(expected).max())
    with load_model(path, bundled_config({**options, "n_batch": 1}), plugins=plugins) as model:
        difference = float(np.abs(model.logits(ids) - expected).max()) / scale
        assert difference <= tolerance, f"token by token the logits differ by {difference:.2e} of the largest"
        again = model.generate(ids[:12], max_tokens=4, temperature=0, ignore_eos=False)
    assert greedy.tokens == again.tokens, f"token by token it generates {again.tokens}, not {greedy.tokens}"
    first = int(expected[11].argmax())
    assert not greedy.tokens or greedy.tokens[0] == first, f"it generates {greedy.tokens[0]}, its logits say {first}"


def check_sampler(sampler: Sampler, n_vocab: int = 64, *, n_tokens: int = 50, seed: int = 0) -> None:
    """Check a sampler's contract over many random steps: it leaves candidates, all of them tokens.

    A sampler that selects must select one of the remaining candidates.
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


def check_proposer(make: Callable[[], Proposer], n_vocab: int = 64, *, n_tokens: int = 200, seed: int = 0) -> None:
    """Check the contract of proposers over random repetitive texts: few tokens, all of them valid.

    ``make`` returns a proposer. Two sequences with the same salt and one with another take turns.
    """
    random = np.random.default_rng(seed)
    shared: dict[Hashable, Any] = {}
    proposers = [make() for _ in range(3)]
    texts = [random.integers(n_vocab, size=7).tolist() * 3 for _ in proposers]
    for proposer, text, salt in zip(proposers, texts, (b"a", b"a", b"b"), strict=True):
        proposer.start(ProposerContext(n_vocab, salt, shared))
        proposer.accept(text)
    for _ in range(n_tokens):
        limits = random.integers(1, 9, size=len(proposers)).tolist()
        for proposer, text, n in zip(proposers, texts, limits, strict=True):
            tokens = proposer.propose(n)
            assert isinstance(tokens, Sequence), f"it proposes {tokens!r}, which is no sequence of tokens"
            assert len(tokens) <= n, f"it proposes {len(tokens)} tokens, more than {n}"
            assert all(0 <= token < n_vocab for token in tokens), "it proposes what is no token"
            proposer.judge(tokens, 0)
            text.append(text[-7] if random.random() < 0.9 else int(random.integers(n_vocab)))
            proposer.accept(text[-1:])
    for proposer in proposers:
        proposer.close()


def trace(g: GraphBuilder, build: Build, activations: Mapping[str, Array]) -> Tensor:
    """Return the result of ``build`` in layer 0 for inputs like the activations ``[n_tokens, ...]``."""
    inputs = {
        name: Input(name, (N_TOKENS, *array.shape[1:]), "i32" if array.dtype == np.int32 else "f32", builder=g)
        for name, array in activations.items()
    }
    with g.layer(0):
        return build(g, inputs)


def compile_graph(backend: Backend, graph: Graph, limits: Limits) -> Program:
    """Return the program of a graph. Raises AssertionError if the backend does not support all of it."""
    target = Target("backend", lambda node: backend.supports(node, limits))
    segments = place(graph, lambda layer: [target])
    assert len(segments) == 1, "the backend does not run the whole graph"
    segment = backend.rewrite(segments[0])
    return backend.compile(segment, plan_memory(segment, limits.sizes), limits)


def is_supported(
    backend: Backend,
    build: Build,
    activations: Mapping[str, Array],
    weights: Mapping[str, Array | TensorSource] | None = None,
    *,
    kv_type: str = "f32",
) -> bool:
    """Return True if a backend alone can run an operation, which may be expanded into others for it.

    The arguments are those of ``check_operation``.
    """
    graph, _, limits = _traced(build, activations, weights or {}, kv_type)
    targets = [Target("backend", lambda node: backend.supports(node, limits)), Target("other", lambda node: True)]
    return all(segment.backend == "backend" for segment in place(graph, lambda layer: targets))


def _traced(
    build: Build, activations: Mapping[str, Array], weights: Mapping[str, Array | TensorSource], kv_type: str
) -> tuple[Graph, Tensor, Limits]:
    sources = {
        name: ArraySource(weight) if isinstance(weight, np.ndarray) else weight for name, weight in weights.items()
    }
    g = GraphBuilder(sources, 1, N_CTX)
    result = trace(g, build, activations)
    graph = g.finish(result)
    return graph, result, _limits(graph, kv_type)


def _limits(graph: Graph, kv_type: str) -> Limits:
    windows = {getattr(state, "window", 0) for state in graph.states} | {0}
    blocks = dict.fromkeys(windows, N_CTX // 32)
    return Limits(N_CTX, N_CTX, N_CTX, 1, 32, blocks, kv_type, graph.sizes)


def _batch(rows: NDArray[np.int32], limits: Limits) -> Batch:
    """Return a batch of one sequence from its first position on."""
    tables = {window: np.arange(N_CTX // 32, dtype=np.int32)[None] for window in limits.n_blocks}
    return Batch(rows, rows, rows, np.array([0, len(rows)], np.int32), np.zeros(1, np.int32), tables)


def _run(
    backend: Backend,
    build: Build,
    activations: Mapping[str, Array],
    weights: Mapping[str, Array | TensorSource],
    kv_type: str,
) -> Array:
    graph, result, limits = _traced(build, activations, weights, kv_type)
    n_tokens = len(next(iter(activations.values())))
    program = compile_graph(backend, graph, limits)
    rows = np.arange(n_tokens, dtype=np.int32)
    batch = _batch(rows, limits)
    inputs = {"tokens": rows, "positions": rows, "output_ids": rows, **activations}
    try:
        return np.array(program.run(Step(batch, inputs))[result.name])
    finally:
        program.close()
        backend.close()
