"""Attention over the steps of growing sequences, for the tests of every backend that claims it."""

import numpy as np

from graphs import Case, Graphed, builder
from pumice.backend.step import Batch, Limits, Memory, Step
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph

#: Prompts and single tokens, some together; the last step has one token alone.
STEPS = [(5, 170, 0), (1, 1, 1), (0, 1, 0), (37, 90, 64), (1, 0, 1), (0, 1, 0)]
SLOPES = tuple(2.0 ** -(i / 2) for i in range(8))

BIASED = {
    "chunk": {"chunk": 48, "kv_type": "f16"},
    "alibi": {"slopes": SLOPES, "kv_type": "q8_0"},
    "relative": {"reach": 20, "window": 100, "softcap": 5.0},
    "both": {"slopes": SLOPES, "reach": 3, "sinks": True},
}
"""Options of attention whose scores have a bias, or are cut into chunks."""

WITHOUT_CACHE = [
    {},
    {"causal": False},
    {"causal": False, "window": 33},
    {"causal": False, "chunk": 33},
    {"causal": False, "reach": 9},
    {"values": False},
]
"""Options of attention over the step alone."""


def compare_attention(folder, mine, right, steps, tolerance=1e-5, **options):
    """A backend's outputs of every step against another's."""
    options.setdefault("scale", 0.2)
    for a, b in zip(*(attend(folder, backend, steps, **options) for backend in (mine, right)), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


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


def attend_to_chosen(folder, backend, kv_type, block_size, pool=1, n_head=8, dim=64, n_local=0):
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
    sinks=False, reach=0, **attrs,
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
    graphed = Graphed(folder, backend, Case(build, rows(1), weights), limits)
    return graphed, rows, batches(steps, n_ctx, block_size, window)


def attend_to_memory(folder, backend, lengths, weights=()):
    """Cross-attention: outputs of decoders with so many tokens, each over what an encoder's graph stored for it.

    ``weights``: those of ``sinks`` and ``bias`` that the attention has.
    """
    random, stored = np.random.default_rng(0), [140, 9, 40][: len(lengths)]
    arrays = {"sinks": random.standard_normal(4).astype("f4"), "bias": random.standard_normal((4, 13)).astype("f4")}
    encoder = builder(folder, {name: arrays[name] for name in weights})
    k, v, q = (Tensor(name, ("n_tokens", heads, 8), builder=encoder) for name, heads in (("k", 2), ("v", 2), ("q", 4)))
    encoder.kv_store(k, v, "memory")
    encoder.output("keys", encoder.scale(k, 1.0))
    decoder = GraphBuilder({}, 1, 64, shared=encoder)
    extra = {name: encoder.weight(name) for name in weights}
    memory = encoder.memory("memory")
    decoder.output("y", decoder.attention(q, None, None, scale=0.3, causal=False, cache=memory, **extra))
    bounds = Limits(256, 256, 256, 3, 32, {0: 24}, "f16")
    stores, reads = (compile_graph(backend, graph, bounds) for graph in (encoder.finish(), decoder.finish()))
    (filled,) = batches([stored], 256, 32, 0)
    stores.run(Step(filled, {name: random.standard_normal((sum(stored), 2, 8)).astype("f4") for name in "kv"}))
    (step,) = batches([lengths], 256, 32, 0)
    step.positions += 5  # a decoder's positions are its own
    step.memory = Memory(np.array(stored[::-1], np.int32), filled.block_tables[0][::-1].copy())
    (y,) = reads.run(Step(step, {"q": random.standard_normal((sum(lengths), 4, 8)).astype("f4")})).values()
    return y.copy()
