"""Rotations around caches change no result but by rounding, and quantized caches lose less with them."""

from pathlib import Path

import numpy as np
import pytest

from attention_tests import batches
from graphs import builder
from nightly import crossed
from pumice.backend.step import Limits, Memory, Step
from pumice.graph import Graph, GraphBuilder, Tensor
from pumice.graph.rotate import rotate_caches
from pumice.testing import compile_graph
from pumice_numpy import NumpyBackend

STEPS = [(5, 40), (1, 1), (9, 0), (1, 1)]
HEADS = {"q": 4, "k": 2, "v": 2}


def attention(folder: Path, k_dim: int, v_dim: int, **attrs: object) -> Graph:
    g = builder(folder, {"sinks": np.ones(4, "f4")})
    dims = {"q": k_dim, "k": k_dim, "v": v_dim}
    q, k, v = (Tensor(name, ("n_tokens", HEADS[name], dims[name]), builder=g) for name in "qkv")
    with g.layer(0):
        g.output("y", g.attention(q, k, v, scale=k_dim**-0.5, sinks=g.weight("sinks"), **attrs))
    return g.finish()


def results(graph: Graph, rows: dict[str, np.ndarray], kv_type: str, window: int = 0) -> np.ndarray:
    """Results of all steps, of rows that are the same for every graph."""
    blocks = dict.fromkeys({0, window}, 2 * 4)
    program = compile_graph(NumpyBackend(), graph, Limits(128, 128, 128, 2, 32, blocks, kv_type))
    outputs, first = [], 0
    for batch in batches(STEPS, 128, 32, window):
        stop = first + len(batch.tokens)
        (y,) = program.run(Step(batch, {name: array[first:stop] for name, array in rows.items()})).values()
        outputs.append(y.copy())
        first = stop
    return np.concatenate(outputs)


def random_rows(k_dim: int, v_dim: int) -> dict[str, np.ndarray]:
    """Rows of which, as in trained models, few values of a head are much larger than the others."""
    random = np.random.default_rng(3)
    rows = {
        name: random.standard_normal((sum(map(sum, STEPS)), HEADS[name], dim)).astype("f4")
        for name, dim in (("q", k_dim), ("k", k_dim), ("v", v_dim))
    }
    for name in ("k", "v"):
        rows[name][..., 5] *= 20
    return rows


@pytest.mark.parametrize(
    ("dims", "attrs"),
    crossed(
        [(64, 64), (192, 128), (256, 320), (64, 48), (80, 64), (96, 96)],
        [{}, {"window": 33}, {"log_sum": True}, {"softcap": 5.0}],
    ),
)
def test_rotations_cancel_out(tmp_path, dims, attrs):
    k_dim, v_dim = dims
    graph, rows = attention(tmp_path, k_dim, v_dim, **attrs), random_rows(k_dim, v_dim)
    rotated = rotate_caches({"main": graph})["main"]
    sizes = {node.attrs["size"] for node in rotated.nodes if node.op == "hadamard"}
    assert sizes == {32 for dim in (k_dim,) if dim % 32 == 0} | {64 for dim in (v_dim,) if dim % 64 == 0}
    expected, actual = (results(each, rows, "f32", attrs.get("window", 0)) for each in (graph, rotated))
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("kv_type", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_quantized_caches_lose_less(tmp_path, kv_type):
    graph, rows = attention(tmp_path, 64, 64), random_rows(64, 64)
    right = results(graph, rows, "f32")
    pair = graph, rotate_caches({"main": graph})["main"]
    plain, rotated = (np.mean((results(each, rows, kv_type) - right) ** 2) for each in pair)
    assert rotated < 0.7 * plain


def test_graphs_that_share_a_cache(tmp_path):
    encoder = builder(tmp_path, {})
    k, v, q = (Tensor(name, ("n_tokens", HEADS[name], 64), builder=encoder) for name in "kvq")
    encoder.kv_store(k, v, "memory")
    encoder.output("keys", encoder.scale(k, 1.0))
    decoder = GraphBuilder({}, 1, 64, shared=encoder)
    memory = decoder.memory("memory")
    decoder.output("y", decoder.attention(q, None, None, scale=0.1, causal=False, cache=memory))
    graphs = {"encoder": encoder.finish(), "decoder": decoder.finish()}
    (stored,), (read,) = (list(batches([lengths], 128, 32, 0)) for lengths in ((30, 7), (3, 3)))
    read.memory = Memory(np.array([30, 7], np.int32), stored.block_tables[0])
    random = np.random.default_rng(1)
    keys = {name: random.standard_normal((37, 2, 64)).astype("f4") for name in "kv"}
    queries = {"q": random.standard_normal((6, 4, 64)).astype("f4")}
    outputs = []
    for pair in (graphs, rotate_caches(graphs)):
        backend, limits = NumpyBackend(), Limits(128, 128, 128, 2, 32, {0: 8}, "f32")
        stores, reads = (compile_graph(backend, pair[name], limits) for name in ("encoder", "decoder"))
        stores.run(Step(stored, keys))
        (y,) = reads.run(Step(read, queries)).values()
        outputs.append(y.copy())
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
