"""Operations, composites and named sizes."""

import numpy as np
import pytest

from graphs import builder, limits
from pumice.backend.step import Batch, Step
from pumice.engine.placement.placed import step_inputs
from pumice.errors import ModelError, RequestError
from pumice.graph import (
    N_TOKENS,
    GraphBuilder,
    KVState,
    RecurrentState,
    Result,
    Target,
    Tensor,
    composite,
    place,
    plan_memory,
)
from pumice_cpu import CpuBackend
from pumice_numpy import NumpyBackend


@composite("test.cube", lambda g, x, bias: g.scale(g.mul(g.mul(x, x), x), 1.0, bias))
def cube(x: Tensor, bias: float = 0.0) -> Result:
    """``x * x * x + bias``."""
    return Result(x.shape)


@pytest.fixture
def g(tmp_path):
    return builder(tmp_path, {"w": np.eye(8, dtype="f4")})


def values(g):
    return g.embedding(g.weight("w"), g.tokens)


def test_a_call_that_does_not_fit_is_a_model_error(g):
    with pytest.raises(ModelError, match="operation linear: missing a required argument: 'weight'"):
        g.linear(values(g))
    with pytest.raises(ModelError, match="operation silu: got an unexpected keyword argument 'beta'"):
        g.silu(values(g), beta=2)


def test_a_composite_goes_whole_to_who_claims_it_and_in_parts_to_others(g):
    graph = g.finish(cube(g, values(g), bias=0.5))
    assert [node.op for node in graph.nodes] == ["embedding", "test.cube"]
    assert [part.op for part in graph.nodes[1].expansion] == ["mul", "mul", "scale"]
    fast = Target("fast", lambda node: node.op == "test.cube")
    other = Target("other", lambda node: not node.op.startswith("test"))
    segments = place(graph, lambda layer: [fast, other])
    assert [[node.op for node in segment.nodes] for segment in segments] == [["embedding"], ["test.cube"]]
    (segment,) = place(graph, lambda layer: [other])
    assert [node.op for node in segment.nodes] == ["embedding", "mul", "mul", "scale"]
    assert segment.nodes[-1].output is graph.outputs["logits"]
    part = Target("part", lambda node: node.op == "scale")
    assert [segment.backend for segment in place(graph, lambda layer: [part, fast, other])] == ["other", "part"]


@pytest.mark.parametrize("backend", [NumpyBackend, CpuBackend])
def test_a_composite_computes_what_its_expansion_does(g, backend):
    backend, bounds = backend(), limits()
    it = Target("it", lambda node: backend.supports(node, bounds))
    (segment,) = place(g.finish(cube(g, values(g) * 3.0, bias=0.5)), lambda layer: [it])
    segment = backend.rewrite(segment)
    program = backend.compile(segment, plan_memory(segment, bounds.sizes), bounds)
    (result,) = program.run(Step(one_sequence(2), {"tokens": np.array([0, 2], np.int32)})).values()
    np.testing.assert_array_equal(result, 27 * np.eye(8)[[0, 2]] + 0.5)
    backend.close()


def test_states_are_named_by_layer_and_shared_on_request(g):
    with g.layer(3):
        x = values(g)
        y = g.conv1d(g.conv1d(x, g.weight("w"), None), g.weight("w"), None).reshape(N_TOKENS, 1, 8)
        own = g.attention(y, y, y, scale=1.0)
        shared = g.attention(own, None, None, scale=1.0, cache=g.cache(3))
        alone = g.attention(shared, y, y, scale=1.0, cache=False)
    states = g.finish(alone).states
    assert [state.name for state in states] == ["conv.3", "conv.3'", "kv.3"]
    assert list(map(type, states)) == [RecurrentState, RecurrentState, KVState]
    with pytest.raises(ModelError, match="layer 4 has no cache"):
        g.cache(4)
    with pytest.raises(ModelError, match="takes keys, or a cache that has them"):
        g.attention(y, None, None, scale=1.0)


@composite("test.kept", lambda g, x: g.conv1d(x, g.weight("w"), None))
def kept(x: Tensor) -> Result:
    return Result(x.shape)


@composite("test.nested", lambda g, x: kept(g, g.silu(x)))
def nested(x: Tensor) -> Result:
    return Result(x.shape)


@composite("test.two_ways", lambda g, x: kept(g, x), prompt=lambda g, x: g.scale(g.conv1d(x, g.weight("w"), None), 1.0))
def two_ways(x: Tensor) -> Result:
    return Result(x.shape)


def test_a_composite_may_be_composed_otherwise_for_prompts_with_the_same_states(g):
    with g.layer(0):
        graph = g.finish(g.silu(two_ways(g, values(g))))
    prompts = graph.for_prompts()
    assert prompts.for_prompts() is None
    assert prompts.outputs == graph.outputs
    assert graph.states == prompts.states
    claims = Target("it", lambda node: not node.op.startswith("test"))
    ops = [[node.op for node in place(each, lambda layer: [claims])[0].nodes] for each in (graph, prompts)]
    assert ops == [["embedding", "conv1d", "silu"], ["embedding", "conv1d", "scale", "silu"]]


def test_graphs_that_share_a_state_run_where_it_is(g):
    with g.layer(0):
        graph = g.finish(two_ways(g, values(g)))
    first = Target("first", lambda node: node.op == "conv1d")
    second = Target("second", lambda node: not node.op.startswith("test"))
    homes = {}
    place(graph, lambda layer: [second], homes)
    segments = place(graph.for_prompts(), lambda layer: [first, second], homes)
    assert [segment.backend for segment in segments] == ["second"]


def test_inputs_and_outputs_have_names(g):
    patches = g.input("patches", (g.size("n_patches", 16), 8))
    g.output("embedding", g.linear(patches, g.weight("w")))
    graph = g.finish()
    assert (list(graph.inputs), list(graph.outputs), graph.sizes) == (["patches"], ["embedding"], {"n_patches": 16})
    with pytest.raises(ModelError, match=r"input patches \[n_patches, 8\] of f32 is also used as \[n_tokens\]"):
        g.input("patches", (N_TOKENS,))
    with pytest.raises(ModelError, match=r"input few \[3\]: the first dimension must be a size of the step"):
        g.input("few", (3,))
    with pytest.raises(ModelError, match=r"declare the size n_more with g\.size"):
        g.input("more", ("n_more", 8))
    with pytest.raises(ModelError, match="output embedding is given twice"):
        g.output("embedding", patches)
    with pytest.raises(ModelError, match="has no output"):
        GraphBuilder({}, 1, 8).finish()


def test_a_step_brings_inputs_of_the_right_shape(g):
    patches = g.input("patches", (g.size("n_patches", 16), 8))
    kinds = g.input("kinds", (N_TOKENS,), "i32", fill=lambda batch: np.zeros(len(batch.positions), np.int32))
    g.output("embedding", g.linear(patches, g.weight("w")))
    g.output("kinds", g.embedding(g.weight("w"), kinds))
    graph, batch = g.finish(), one_sequence(3)
    with pytest.raises(RequestError, match=r"the input patches \[n_patches, 8\] is missing"):
        step_inputs(graph, batch)
    batch.inputs = {"patches": np.zeros((5, 7), "f4")}
    with pytest.raises(RequestError, match=r"patches \[n_patches, 8\] has the wrong shape \[5, 7\]"):
        step_inputs(graph, batch)
    batch.inputs = {"patches": np.zeros((5, 8), "f4")}
    assert step_inputs(graph, batch)["kinds"].tolist() == [0, 0, 0]
    assert batch.sizes == {"n_tokens": 3, "n_outputs": 3, "n_seqs": 1, "n_patches": 5}


def one_sequence(n: int) -> Batch:
    rows = np.arange(n, dtype=np.int32)
    return Batch(rows, rows, rows, np.array([0, n], np.int32), np.zeros(1, np.int32), {})
