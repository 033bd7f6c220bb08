"""Attention over random steps of growing sequences, which each backend's tests run beside the NumPy backend."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import Case, Graphed, builder
from nightly import EXAMPLES
from pumice.backend import Backend
from pumice.backend.step import Batch, Limits, Memory, Step
from pumice.gguf import KV_TYPES
from pumice.graph import GraphBuilder, Tensor
from pumice.graph.rotate import rotate_caches
from pumice.testing import compile_graph
from pumice_numpy import NumpyBackend

each_set = pytest.mark.every_instruction_set
fewer = settings(max_examples=-(-EXAMPLES // 6))  # each compiles kernels for seconds, and then computes several cases
FLOATS = ("f32", "f16", "bf16")
#: Prompts and single tokens, some together; the last step has one token alone.
STEPS = [(5, 130, 0), (1, 1, 1), (0, 1, 0), (3, 20, 33), (1, 0, 1), (0, 1, 0)]
GROWING = [
    STEPS,
    [*STEPS, (1, 180, 1), (0, 1, 0)],
    [(255,), (1,), (1,), (350,), (1,), (1,)],
    [(40,), (1,), (30,), (1,)],
]
EXTENTS = [*({"window": n} for n in (1, 7, 33, 300)), {"chunk": 48}, {"chunk": 150}]
MASKS = [{}, {"causal": False}, *EXTENTS, *({"causal": False, **extent} for extent in EXTENTS)]
SLOPES = tuple(2.0 ** -(i / 2) for i in range(20))
SCORES = [{}, {}, {"softcap": 3.0}, {"reach": 20}, {"reach": 3, "softcap": 5.0}, {"slopes": SLOPES}]
SCORES.append({"slopes": SLOPES, "reach": 9})


@st.composite
def shapes(draw: st.DrawFn, kv_type: str = "f32", cached: bool = True) -> dict[str, Any]:
    """Numbers of heads and their sizes. Rows of quantized caches are whole blocks, which heads may share."""
    if draw(st.integers(0, 9)) == 5:
        return {"heads": (17, 1), "dims": (576, 512), "values": False}
    if not cached:
        dims = st.sampled_from([2, 8, 18, 20, 50, 64, 72]), st.sampled_from([1, 2, 7, 8, 15, 17, 24, 31, 47, 80, 96])
        return {"heads": draw(st.sampled_from([(3, 3), (6, 2), (5, 1)])), "dims": draw(st.tuples(*dims))}
    heads = draw(st.sampled_from([(3, 3), (6, 2), (8, 1), (20, 2), (16, 4)]))
    unit = 1 if kv_type in FLOATS else 32
    sizes = [(64, 96), (80, 40), (20, 50), (32, 32), (96, 64)]
    fitting = [dims for dims in sizes if not any(heads[1] * dim % unit for dim in dims)]
    return {"heads": heads, "dims": draw(st.sampled_from(fitting))}


@st.composite
def attentions(draw: st.DrawFn, cached: bool = True) -> dict[str, Any]:
    """Options of ``attend``."""
    kv_type = draw(st.sampled_from(sorted(KV_TYPES))) if cached else "f32"
    options = {**draw(shapes(kv_type, cached)), **draw(st.sampled_from(MASKS)), **draw(st.sampled_from(SCORES))}
    if "slopes" in options:
        options["slopes"] = SLOPES[: options["heads"][0]]
    options |= {name: True for name in ("sinks", "log_sum") if draw(st.booleans())}
    if cached:
        return options | {"kv_type": kv_type, "block_size": draw(st.sampled_from([5, 8, 16, 32, 64]))}
    return options | {"cache": False}


lengths = st.lists(st.sampled_from([1, 2, 3, 15, 16, 17, 64, 70, 100, 257]), min_size=1, max_size=3).filter(
    lambda lengths: sum(lengths) <= 512
)


class AttentionTests:
    """A subclass has ``backends`` as a fixture: all of them are to give the very same bits."""

    tolerance = 1e-5
    unit = 1  # of the sizes of heads without a cache

    def compare(self, actual: np.ndarray, expected: np.ndarray, kv_type: str) -> None:
        np.testing.assert_allclose(actual, expected, rtol=self.tolerance, atol=self.tolerance)

    @pytest.fixture
    def check(self, tmp_path: Path, backends: Sequence[Backend]) -> Callable[..., None]:
        def check(
            attend: Callable[..., list[np.ndarray]], *arguments: Any, kv_type: str = "f32", **options: Any
        ) -> None:
            expected, first, *others = (
                attend(tmp_path, backend, *arguments, kv_type=kv_type, **options)
                for backend in (NumpyBackend(), *backends)
            )
            for i, right in enumerate(expected):
                self.compare(first[i], right, kv_type)
                for other in others:
                    np.testing.assert_array_equal(other[i], first[i])

        return check

    @each_set
    @fewer
    @given(grown=st.sets(st.sampled_from(range(len(GROWING))), min_size=2, max_size=2), options=attentions())
    def test_attention(self, check: Callable[..., None], grown: set[int], options: dict[str, Any]) -> None:
        for i in sorted(grown):
            check(attend, GROWING[i], **options)

    @each_set
    @fewer
    @given(steps=st.lists(lengths, min_size=2, max_size=2), options=attentions(cached=False))
    def test_attention_over_the_step_alone(
        self, check: Callable[..., None], steps: list[list[int]], options: dict[str, Any]
    ) -> None:
        dims = tuple(-(-size // self.unit) * self.unit for size in options["dims"])
        for step in steps:
            check(attend, [tuple(step)], **{**options, "dims": dims})

    @pytest.mark.parametrize("lengths", [[3, 1], [1, 2, 30]])
    @pytest.mark.parametrize("weights", [(), ("sinks", "bias")], ids=["plain", "relative"])
    def test_attention_to_keys_stored_by_another_graph(
        self, check: Callable[..., None], lengths: list[int], weights: tuple[str, ...]
    ) -> None:
        check(attend_to_memory, lengths, weights, kv_type="f16")

    @fewer
    @given(
        kv_type=st.sampled_from(["f32", "f16", "bf16", "q8_0"]),
        indexer=st.sampled_from([(8, 64), (11, 64), (2, 32), (11, 40)]),
        block_size=st.sampled_from([5, 32]),
        pools=st.sets(st.sampled_from([1, 3, 4, 8]), min_size=2, max_size=2),
        n_local=st.sampled_from([0, 2]),
    )
    def test_chosen_positions(
        self, check: Callable[..., None], kv_type: str, indexer: tuple[int, int], pools: set[int], **options: int
    ) -> None:
        n_head, dim = indexer if kv_type in FLOATS else (indexer[0], 64)
        for pool in sorted(pools):
            check(attend_to_chosen, kv_type=kv_type, n_head=n_head, dim=dim, pool=pool, **options)


def batches(steps, n_ctx, block_size, window):
    """Sequences that grow by ``lengths[s]`` tokens each step, with blocks dealt out in a mixed order."""
    n_seqs, n_blocks = len(steps[0]), -(-n_ctx // block_size)
    tables = np.random.default_rng(4).permutation(n_seqs * n_blocks).astype(np.int32).reshape(n_seqs, n_blocks)
    n_past = np.zeros(n_seqs, np.int32)
    for lengths in np.array(steps):
        for s in range(n_seqs):
            if window:  # blocks that slid out are given back
                tables[s, : max(0, n_past[s] - window + 1) // block_size] = -1
        (chosen,) = np.nonzero(lengths)
        starts = np.cumsum([0, *lengths[chosen]]).astype(np.int32)
        rows = np.arange(starts[-1], dtype=np.int32)
        yield Batch(
            tokens=rows,
            positions=np.concatenate([np.arange(n_past[s], n_past[s] + lengths[s], dtype=np.int32) for s in chosen]),
            output_ids=rows,
            seq_starts=starts,
            slots=chosen.astype(np.int32),
            block_tables={0: tables[chosen, :1], window: tables[chosen]},
        )
        n_past += lengths


def attend(folder, backend, steps, **options):
    """Outputs of each step, of queries, keys and values that are the same for every backend."""
    options.setdefault("scale", options.get("dims", (32,))[0] ** -0.5)
    random = np.random.default_rng(0)
    graphed, rows, grown = _attention(folder, backend, steps, random, **options)
    return [graphed(rows(len(batch.tokens)), batch) for batch in grown]


def attend_fixed(folder, backend, steps, n_tokens, **options):
    """Outputs of the first sequence's ``n_tokens``, whose queries, keys and values are the same for all steps."""
    random = np.random.default_rng(0)
    graphed, rows, grown = _attention(folder, backend, steps, random, **options)
    own, found = rows(n_tokens), []
    for batch in grown:
        n_own = batch.seq_starts[1]
        beside = rows(len(batch.tokens) - n_own)
        x = {name: np.concatenate([own[name][batch.positions[:n_own]], beside[name]]) for name in own}
        found.append(graphed(x, batch)[:n_own])
    return np.concatenate(found)


def attend_to_chosen(folder, backend, kv_type="f32", block_size=32, pool=1, n_head=8, dim=64, n_local=0):
    """Outputs of steps in which an indexer chooses, of more positions or pools than are chosen, and of fewer."""
    random, n_ctx = np.random.default_rng(1), 600
    limits = Limits(n_ctx, 512, 512, 2, block_size, {0: 2 * -(-n_ctx // block_size)}, kv_type)

    def rows(n):
        shapes = {"q": (n_head, dim), "k": (1, dim), "weights": (n_head,), "x": (4, 32), "y": (1, 32)}
        return {name: random.standard_normal((n, *shape)).astype("f4") for name, shape in shapes.items()}

    def build(g, a):
        mask = g.choose_positions(
            a["q"], a["k"], a["weights"], n_chosen=40 // pool, n_ctx=n_ctx, pool=pool, n_local=n_local
        )
        return g.attention(a["x"], a["y"], None, scale=0.5, v_dim=16, mask=mask)

    graphed = Graphed(folder, backend, Case(build, rows(1), {}), limits)
    steps = batches([(30, 170), (1, 1), (0, 1), (60, 300), (1, 0)], n_ctx, block_size, 0)
    return [graphed(rows(len(step.tokens)), step) for step in steps]


def _attention(
    folder, backend, steps, random, heads=(4, 2), dims=(32, 32), kv_type="f32", block_size=32, values=True, n_ctx=1024,
    sinks=False, reach=0, rotates_caches=False, **attrs,
):  # fmt: skip
    """A graph of one operation, what makes so many random rows for it, and the batches."""
    (n_head, n_head_kv), (k_dim, v_dim) = heads, dims

    def rows(n):
        x = {"q": (n_head, k_dim), "k": (n_head_kv, k_dim), "v": (n_head_kv, v_dim)}
        return {name: random.standard_normal((n, *shape)).astype("f4") for name, shape in x.items()}

    window = attrs.get("window", 0) or attrs.get("chunk", 0)
    weights = {"sinks": random.standard_normal(n_head).astype("f4")} if sinks else {}
    if reach:
        weights["bias"] = random.standard_normal((n_head, 2 * reach + 1)).astype("f4")

    def build(g, a):
        inside = {} if values else {"v_dim": v_dim}
        sink = g.weight("sinks") if sinks else None
        bias = g.weight("bias") if reach else None
        return g.attention(a["q"], a["k"], a["v"] if values else None, sinks=sink, bias=bias, **attrs, **inside)

    n_seqs = len(steps[0])
    n_blocks = dict.fromkeys({0, window}, n_seqs * -(-n_ctx // block_size))
    limits = Limits(n_ctx, 512, 512, n_seqs, block_size, n_blocks, kv_type)
    graphed = Graphed(folder, backend, Case(build, rows(1), weights), limits, rotates_caches=rotates_caches)
    return graphed, rows, batches(steps, n_ctx, block_size, window)


def attend_to_memory(
    folder, backend, lengths, weights=(), kv_type="f16", dim=8, rotates_caches=False, stored=(140, 9, 40)
):
    """Cross-attention: outputs of decoders with so many tokens, each over what an encoder's graph stored for it.

    ``weights``: those of ``sinks`` and ``bias`` that the attention has. ``dim``: values of a head. ``stored``:
    positions; no numbers lie behind them.
    """
    random, stored, n_ctx = np.random.default_rng(0), list(stored[: len(lengths)]), 32 * (max(stored) // 32 + 4)
    arrays = {"sinks": random.standard_normal(4).astype("f4"), "bias": random.standard_normal((4, 13)).astype("f4")}
    encoder = builder(folder, {name: arrays[name] for name in weights})
    k, v, q = (
        Tensor(name, ("n_tokens", heads, dim), builder=encoder) for name, heads in (("k", 2), ("v", 2), ("q", 4))
    )
    encoder.kv_store(k, v, "memory")
    encoder.output("keys", encoder.scale(k, 1.0))
    decoder = GraphBuilder({}, 1, 64, shared=encoder)
    extra = {name: encoder.weight(name) for name in weights}
    memory = encoder.memory("memory")
    decoder.output("y", decoder.attention(q, None, None, scale=0.3, causal=False, cache=memory, **extra))
    n_batch, n_blocks = 3 * n_ctx, 3 * n_ctx // 32
    bounds = Limits(n_ctx, n_batch, n_batch, 3, 32, {0: n_blocks}, kv_type)
    graphs = {"encoder": encoder.finish(), "decoder": decoder.finish()}
    graphs = rotate_caches(graphs) if rotates_caches else graphs
    stores, reads = (compile_graph(backend, graph, bounds) for graph in graphs.values())
    if kv_type in ("f32", "f16"):
        (before,) = batches([[n + 15 for n in stored]], n_ctx, 32, 0)
        stores.run(Step(before, dict.fromkeys("kv", np.full((len(before.positions), 2, dim), np.nan, np.float32))))
    (filled,) = batches([stored], n_ctx, 32, 0)
    stores.run(Step(filled, {name: random.standard_normal((sum(stored), 2, dim)).astype("f4") for name in "kv"}))
    (step,) = batches([lengths], n_ctx, 32, 0)
    step.positions += 5  # a decoder's positions are its own
    step.memory = Memory(np.array(stored[::-1], np.int32), filled.block_tables[0][::-1].copy())
    (y,) = reads.run(Step(step, {"q": random.standard_normal((sum(lengths), 4, dim)).astype("f4")})).values()
    return [y.copy()]
