"""The form of a language model's graph whose steps have rows of embeddings among their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.errors import ModelError
from pumice.graph.builder import GraphBuilder
from pumice.graph.shape import HIDDEN, N_TOKENS, fixed, mask_width
from pumice.graph.tensor import Graph, KVState, Node, StepRows, Tensor, Weight

ROWS = "media_rows"  # float32 [n_tokens, n_embd * (1 + len(deepstack))]: embeddings of media; zero for tokens
IS_TOKEN = "is_token"  # float32 [n_tokens, 1]: 1 for tokens, 0 for media
PLACES = "media_places"  # int32 [n_tokens, N_AXES]: place in time, row, column, number of the image, if RoPE has axes
SEEN = "media_seen"  # float32 [n_tokens, 1]: first position that attention with a window sees from a media row
N_AXES = 4


class Rules(Protocol):
    """The part of ``pumice.architecture.MediaRules`` that the graph reads."""

    @property
    def axes(self) -> Sequence[int]: ...
    @property
    def deepstack(self) -> Sequence[int]: ...
    @property
    def windows_only(self) -> bool: ...
    @property
    def windowless(self) -> int: ...
    @property
    def pads(self) -> bool: ...
    @property
    def scales(self) -> bool: ...
    @property
    def experts(self) -> Mapping[str, str]: ...
    @property
    def router_bias(self) -> str: ...


def with_media(graph: Graph, rules: Rules, both_ways: bool = False) -> Graph | None:
    """Return the graph with media rows in place of some token embeddings.

    None if it reads tokens elsewhere, too, and the model does not pad there, has no RoPE that could turn by axes, or
    lacks a matrix for media; and for steps with tokens beside media, if these have routers of their own.

    Weights and caches are those of ``graph``. Where a family scales embeddings, as Gemma does, media rows are not
    scaled unless the rules say so. With ``both_ways`` the graph is for steps of one image's positions, all of which
    attend to each other.
    """
    axes, deepstack = rules.axes, rules.deepstack
    readers = [node for node in graph.nodes if graph.inputs.get("tokens") in node.operands()]
    if not readers or (len(readers) > 1 and not rules.pads) or any(node.op != "embedding" for node in readers):
        return None
    if rules.router_bias and not both_ways:
        return None
    g = readers[0].output.builder
    assert isinstance(g, GraphBuilder)
    width = int(readers[0].output.shape[-1])
    others = [other for node in graph.nodes if (other := _expert_of(node, rules.experts))]
    if not all(g.find_weight(f"{name}.weight") for name in others):
        return None
    rows = g.input(ROWS, (N_TOKENS, width * (1 + len(deepstack)) + bool(rules.experts)))
    inputs: dict[str, Any] = {**graph.inputs, ROWS: rows, IS_TOKEN: g.input(IS_TOKEN, (N_TOKENS, 1))}
    replaced = _mixed(g, graph, readers[0], rows, rules.scales)
    for i, layer in enumerate(deepstack, 1):
        if layer < len(graph.layer_outputs):
            replaced |= _with_added(g, graph, graph.layer_outputs[layer], rows, i * width)
    replaced |= _with_experts(g, graph, rows, rules.experts)
    if rules.router_bias:
        replaced |= _with_router(g, graph, rules.router_bias)
    if both_ways and rules.windowless:
        replaced |= _with_whole_spans(g, graph, inputs)
    nodes = [part for node in graph.nodes for part in replaced.get(node.output, [node])]
    if axes:
        inputs[PLACES] = g.input(PLACES, (N_TOKENS, N_AXES), "i32")
        turned = [_turning(node, inputs.get("positions"), inputs[PLACES], axes) for node in nodes]
        if turned == nodes:
            return None
        nodes = turned
    if both_ways:
        nodes = [_seeing_ahead(node, rules.windows_only) for node in nodes]
    return replace(graph, nodes=nodes, inputs=inputs).only(graph.outputs)


def _mixed(g: GraphBuilder, graph: Graph, embedding: Node, rows: Tensor, scales: bool) -> dict[Tensor, list[Node]]:
    """Return the nodes that compute the embeddings with media rows among them.

    If the graph scales the embeddings of tokens, so does this, those of media only with ``scales``.
    """
    target = embedding
    following = [node for node in graph.nodes if embedding.output in node.operands()]
    if not scales and len(following) == 1 and following[0].op == "scale":
        target = following[0]
    with g.collecting() as nodes:
        x = g.embedding(embedding.weight("weight"), g.tokens)
        if target is not embedding:
            x = g.apply("scale", x, **target.attrs)
        width = int(x.shape[-1])
        first = rows if rows.shape[-1] == width else g.slice(rows, 0, width)
        _ = x * g.input(IS_TOKEN, (N_TOKENS, 1)) + first
    mixed = [replace(node, layer=target.layer) for node in nodes]
    return {target.output: [*mixed[:-1], mixed[-1].giving(target.output)]}


def _with_added(g: GraphBuilder, graph: Graph, output: Tensor, rows: Tensor, start: int) -> dict[Tensor, list[Node]]:
    """Return the node of a layer's output, followed by the addition of rows' values from ``start`` on."""
    node = next(node for node in graph.nodes if node.output is output)
    before = Tensor(f"{output.name} alone", output.shape, output.dtype, builder=g)
    with g.collecting() as nodes:
        _ = before + g.slice(rows, start, start + int(output.shape[-1]))
    added = [replace(part, layer=node.layer) for part in nodes]
    return {output: [node.giving(before), *added[:-1], added[-1].giving(output)]}


def _with_experts(g: GraphBuilder, graph: Graph, rows: Tensor, experts: Mapping[str, str]) -> dict[Tensor, list[Node]]:
    """Return the nodes of both products, of which the last value of a row chooses one, for each matrix with another."""
    last = int(rows.shape[-1]) - 1
    replaced = {}
    for node in graph.nodes:
        other = _expert_of(node, experts)
        if not other:
            continue
        weight = node.weight("weight")
        n_rows, width = fixed(weight.shape)
        of_media, bias = g.weight(f"{other}.weight"), g.find_weight(f"{other}.bias")
        if of_media.shape != weight.shape:  # the matrix is a part of several that are joined
            part = weight.first_row, weight.first_row + n_rows
            of_media, bias = of_media.rows(*part), bias.rows(*part) if bias else None
        if of_media.shape != (n_rows, width):
            raise ModelError(f"tensor {other}.weight has shape {list(of_media.shape)}, unlike that for tokens")
        with g.collecting() as nodes:
            for_tokens = g.apply("linear", *node.operands())
            for_media = g.linear(node.inputs["x"], of_media, bias)
            _ = for_tokens + (for_media + for_tokens * -1.0) * g.slice(rows, last, last + 1)
        parts = [replace(part, layer=node.layer) for part in nodes]
        replaced[node.output] = [*parts[:-1], parts[-1].giving(node.output)]
    return replaced


def _expert_of(node: Node, experts: Mapping[str, str]) -> str:
    """Return the name of the matrix that replaces a product's for media, without its suffix; empty without one."""
    weight = node.inputs.get("weight") if node.op == "linear" else None
    if not experts or not isinstance(weight, Weight):
        return ""
    blk, _, name = weight.name.partition("[")[0].rpartition(".weight")[0].rpartition(".")
    return f"{blk}.{experts[name]}" if name in experts else ""


def _with_router(g: GraphBuilder, graph: Graph, name: str) -> dict[Tensor, list[Node]]:
    """Return the nodes that choose experts of media in place of those for tokens."""
    choices = {node.output: node for node in graph.nodes if node.op == "expert_ids"}
    replaced = {}
    for node in graph.nodes:
        if node.op != "expert_weights":
            continue
        logits, ids = node.inputs["logits"], node.inputs["ids"]
        usual = choices.get(ids)
        bias: Any = g.find_weight(f"blk.{node.layer}.{name}.bias") or (usual.inputs.get("bias") if usual else None)
        groups = {key: usual.attrs[key] for key in ("n_group", "n_group_used")} if usual else {}
        with g.collecting() as nodes:
            g.expert_ids(logits, bias, n_used=int(ids.shape[1]), gate=node.attrs["gate"], **groups)
        replaced[ids] = [replace(nodes[0], layer=node.layer).giving(ids)]
    return replaced


def _turning(node: Node, positions: Tensor | None, places: Tensor, axes: Sequence[int]) -> Node:
    """Return a RoPE node that turns by places in time, row, column and number of the image instead of positions."""
    if node.op != "rope" or node.inputs["positions"] is not positions or len(node.attrs["freqs"]) != len(axes):
        return node
    return replace(node, inputs={**node.inputs, "positions": places}, attrs={**node.attrs, "axes": tuple(axes)})


def _seeing_ahead(node: Node, windows_only: bool) -> Node:
    """Return a causal attention node that sees all positions of its step, and earlier ones as far as before.

    ``windows_only``: nodes without a window remain as they are.
    """
    if node.op != "attention" or not node.attrs["causal"] or (windows_only and not node.attrs["window"]):
        return node
    window = max(2 * (node.attrs["window"] - 1), 1) if node.attrs["window"] else 0
    return replace(node, attrs={**node.attrs, "causal": False, "window": window})


def _with_whole_spans(g: GraphBuilder, graph: Graph, inputs: dict[str, Tensor]) -> dict[Tensor, list[Node]]:
    """Return the nodes of attention with a window, which does not apply among the step's positions.

    Their caches keep more positions than the window. Queries see as many, and a mask hides those before the window.
    """
    replaced = {}
    for node in graph.nodes:
        if node.op != "attention" or not node.attrs["causal"] or not node.attrs["window"]:
            continue
        window, n_kept = node.attrs["window"], node.state_of(KVState).window
        if n_kept <= window or "mask" in node.inputs:
            continue
        name, n = f"{SEEN}.{window}", mask_width(g.n_ctx)
        inputs[name] = first = g.input(name, (N_TOKENS, 1), fill=partial(_first_seen, window=window))
        column = g.derived(f"{SEEN}.column", (n, 1), lambda n=n: np.zeros((n, 1)))
        places = g.derived(f"{SEEN}.places", (n,), lambda n=n: -np.arange(n))
        with g.collecting() as nodes:
            # Products may round positions to 11 bits, sums do not.
            ahead = g.linear(g.scale(first, 0.0), column, places) + first
            mask = g.clamp(ahead, 0.0, 1.0) * HIDDEN
        attrs = {**node.attrs, "causal": False, "window": 2 * (n_kept - 1)}
        whole = replace(node, inputs={**node.inputs, "mask": mask}, attrs=attrs)
        replaced[node.output] = [*(replace(part, layer=node.layer) for part in nodes), whole]
    return replaced


def _first_seen(batch: StepRows, window: int) -> NDArray[np.float32]:
    """Return ``SEEN``: the first position of a token's sequence in the step, or of its window, if that is earlier."""
    starts = np.repeat(batch.positions[batch.seq_starts[:-1]], np.diff(batch.seq_starts))
    first: NDArray[np.float32] = np.minimum(starts, batch.positions - window + 1).astype(np.float32)
    return first[:, None]
