"""The pattern of a token in one dispatch: models that differ in one place from what the shader computes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pumice.graph import Node, Segment, Tensor
from pumice_vulkan.fuse import GROUP, Group
from pumice_vulkan.persistent import find_decoder
from tools import gpu_profiles

Change = Callable[[Node, Mapping[str, list[Node]]], Node]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    path = tmp_path_factory.mktemp("llama") / "model.gguf"
    with gpu_profiles.captured(gpu_profiles.write_model(path)) as (segment, *_):
        return segment


def changed(segment: Segment, op: str, number: int, change: Change) -> Segment:
    """Return a segment whose node ``number`` of an operation is another one."""
    by_op: dict[str, list[Node]] = {}
    members = [node.attrs["group"].nodes if node.op == GROUP else [node] for node in segment.nodes]
    for node in (node for nodes in members for node in nodes):
        by_op.setdefault(node.op, []).append(node)
    chosen = by_op[op][number]

    def new(node: Node) -> Node:
        if node.op == GROUP:
            group = Group(node.attrs["group"].kind, [new(member) for member in node.attrs["group"].nodes])
            return replace(node, attrs={**node.attrs, "group": group})
        return change(node, by_op) if node is chosen else node

    return replace(segment, nodes=[new(node) for node in segment.nodes])


def with_attrs(**attrs: Any) -> Change:
    return lambda node, _: replace(node, attrs={**node.attrs, **attrs})


def with_input(name: str, tensor: Callable[[Node, Mapping[str, list[Node]]], Tensor]) -> Change:
    return lambda node, by_op: replace(node, inputs={**node.inputs, name: tensor(node, by_op)})


def other_positions(node: Node, _: Mapping[str, list[Node]]) -> Tensor:
    return replace(node.inputs["positions"], name="other positions")


def test_a_llama_has_the_pattern(llama: Segment) -> None:
    decoder = find_decoder(llama)
    assert decoder is not None
    assert len(decoder.layers) == 2
    assert find_decoder(changed(llama, "rope", 0, lambda node, _: replace(node))) is not None


@pytest.mark.parametrize(
    ("op", "number", "change"),
    [
        ("rope", 1, with_attrs(magnitude=2.0)),
        ("rope", 1, with_attrs(neox=True)),
        ("rope", 3, with_attrs(freqs=(0.5, 0.25))),
        ("rope", 1, with_input("positions", other_positions)),
        ("rope", 0, with_input("positions", other_positions)),
        ("rope", 0, with_attrs(axes=(0, 1))),
        ("attention", 0, with_input("q", lambda _, by_op: by_op["rope"][0].inputs["x"])),
        ("attention", 0, with_input("k", lambda _, by_op: by_op["rope"][1].inputs["x"])),
        ("attention", 0, with_input("v", lambda _, by_op: by_op["rope"][1].output)),
        ("attention", 1, with_attrs(causal=False)),
        ("attention", 1, with_attrs(chunk=8)),
        ("attention", 1, with_attrs(window=8)),
        ("attention", 0, with_attrs(softcap=5.0)),
        ("add", 0, with_input("y", lambda node, _: node.operands()[0])),
        ("rms_norm", 1, with_input("x", lambda _, by_op: by_op["embedding"][0].output)),
        ("silu_mul", 0, with_input("x", lambda node, _: node.operands()[1])),
        ("linear", 3, with_input("x", lambda _, by_op: by_op["embedding"][0].output)),
        ("linear", -1, with_input("bias", lambda node, _: node.weight("weight"))),
    ],
)
def test_other_models_do_not(llama: Segment, op: str, number: int, change: Change) -> None:
    decoder = find_decoder(changed(llama, op, number, change))
    assert decoder is None or not decoder.is_regular
