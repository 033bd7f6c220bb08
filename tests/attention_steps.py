"""Attention over the steps of growing sequences, for the tests of every backend that claims it."""

import numpy as np

from graphs import Case, Graphed
from pumice.backend import Batch, Limits


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


def attend(
    folder, backend, steps, heads=(4, 2), dims=(32, 32), kv_type="f32", block_size=32, values=True, n_ctx=1024,
    sinks=False, reach=0, **attrs,
):  # fmt: skip
    """Outputs of each step, of queries, keys and values that are the same for every backend."""
    random = np.random.default_rng(0)
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
    return [graphed(rows(len(batch.tokens)), batch) for batch in batches(steps, n_ctx, block_size, window)]
