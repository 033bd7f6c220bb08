"""Placement: by what backends claim, by layers, with the right values handed over at the seams."""

import numpy as np
import pytest

from graphs import builder
from pumice.errors import BackendError
from pumice.graph import Target, place


def layered_graph(tmp_path, n_layer=4):
    g = builder(tmp_path, {"w": np.ones((8, 8), np.float32)}, n_layer)
    x = g.embedding(g.weight("w"), g.tokens)
    for index in range(n_layer):
        with g.layer(index):
            x = x + g.silu(g.linear(x, g.weight("w")))
    return g.finish(g.linear(g.get_rows(x, g.output_ids), g.weight("w")))


def claims(*ops):
    return lambda node: not ops or node.op in ops


def line(**claimed):
    targets = [Target(name, claim) for name, claim in claimed.items()]
    return lambda layer: targets


def names(segments):
    return [(segment.backend, [node.op for node in segment.nodes]) for segment in segments]


def test_one_backend_gives_one_segment_with_the_inputs_of_the_engine(tmp_path):
    (segment,) = place(layered_graph(tmp_path), line(all=claims()))
    assert [tensor.name for tensor in segment.inputs] == ["tokens", "output_ids"]
    assert segment.outputs == [segment.nodes[-1].output]
    assert [weight.name for weight in segment.weights] == ["w"]


def test_nodes_unclaimed_by_the_first_backend_go_to_the_next(tmp_path):
    segments = place(layered_graph(tmp_path, 1), line(fast=claims("linear"), slow=claims()))
    fast = ("fast", ["linear"])
    assert names(segments) == [("slow", ["embedding"]), fast, ("slow", ["silu", "add", "get_rows"]), fast]
    embedded = segments[0].nodes[0].output
    assert segments[0].outputs == [embedded]
    assert embedded in segments[1].inputs
    assert embedded in segments[2].inputs  # the residual crosses two seams


def test_each_layer_has_a_line_of_its_own(tmp_path):
    first, last = [Target("gpu", claims())], [Target("gpu", claims(), device=1)]
    segments = place(layered_graph(tmp_path), lambda layer: first if layer < 3 else last)
    layers = [(segment.device, {max(node.layer, 0) for node in segment.nodes}) for segment in segments]
    assert layers == [(0, {0, 1, 2}), (1, {3, 4})]
    assert segments[0].outputs == [tensor for tensor in segments[1].inputs if tensor.name != "output_ids"]
    assert [segment.gives_logits for segment in segments] == [False, True]


def test_an_operation_nobody_claims_is_an_error_that_names_it(tmp_path):
    with pytest.raises(BackendError, match=r"operation silu.*tried: a"):
        place(layered_graph(tmp_path), line(a=claims("linear", "embedding")))
