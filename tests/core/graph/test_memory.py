"""The memory plan: values alive at the same time never share bytes, and the arena is no larger than it must be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphs import builder
from pumice.graph import Segment, Target, Tensor, place, plan_memory


def everywhere(layer):
    return [Target("any", lambda node: True)]


def test_a_reshape_shares_the_place_of_its_source(tmp_path):
    g = builder(tmp_path, {"w": np.ones((8, 8), np.float32)})
    x = g.silu(g.embedding(g.weight("w"), g.tokens))
    y = x.reshape("n_tokens", 2, 4)
    (segment,) = place(g.finish(g.silu(y)), everywhere)
    plan = plan_memory(segment, {"n_tokens": 16, "n_outputs": 16})
    assert plan.offsets[x] == plan.offsets[y]


@given(data=st.data(), n_nodes=st.integers(1, 40))
def test_no_two_live_values_overlap(tmp_path_factory, data, n_nodes):
    segment = random_segment(tmp_path_factory.mktemp("plan"), data, n_nodes)
    plan = plan_memory(segment, {"n_tokens": 7, "n_outputs": 5})
    last_use = lifetimes(segment)
    size = {tensor: 4 * 7 * tensor.shape[1] for tensor in last_use}
    for time, node in enumerate(segment.nodes):
        made = {n.output for n in segment.nodes[: time + 1]}
        live = [t for t in made if last_use[t] >= time]
        for tensor in live:
            if tensor is node.output:
                continue
            a, b = plan.offsets[tensor], plan.offsets[node.output]
            assert a + size[tensor] <= b or b + size[node.output] <= a, f"{tensor.name} and {node.output.name} overlap"
            assert a + size[tensor] <= plan.size


def random_segment(folder, data, n_nodes) -> Segment:
    g = builder(folder, {f"w{width}": np.ones((4, width), np.float32) for width in (4, 64, 256)})
    values: list[Tensor] = []
    for _ in range(n_nodes):
        same = data.draw(st.booleans()) if values else False
        if same:
            values.append(g.silu(data.draw(st.sampled_from(values))))
        else:
            values.append(g.embedding(g.weight(f"w{data.draw(st.sampled_from((4, 64, 256)))}"), g.tokens))
        pairs = [(a, b) for a in values for b in values if a.shape == b.shape]
        x, y = data.draw(st.sampled_from(pairs))
        values.append(g.add(x, y))
    (segment,) = place(g.finish(values[-1]), everywhere)
    return segment


def lifetimes(segment: Segment) -> dict[Tensor, int]:
    last = {node.output: time for time, node in enumerate(segment.nodes)}
    for time, node in enumerate(segment.nodes):
        for tensor in node.operands():
            if tensor in last:
                last[tensor] = max(last[tensor], time)
    for tensor in segment.outputs:
        last[tensor] = len(segment.nodes)
    return last
