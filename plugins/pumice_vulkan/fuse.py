"""The fusion pass: nodes that one kernel can compute together become one group.

A group takes the place of its last node. Its nodes still have places of their own in the memory plan, all of them from
the first to the last, so that a group can also be lowered node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from pumice.plugin import ELEMENTWISE, Node, Segment, State, Tensor, row_size

GROUP, DEFERRED = "group", "deferred"  # operations of nodes that stand for a group, and for its parts before the last
MOST_PRODUCTS = 8  # that share a norm
MOST_STEPS, MOST_OPERANDS = 8, 5  # of shaders/elementwise.comp


@dataclass(eq=False)
class Group:
    """Nodes in order, and which kernels they become: a name in ``lower.groups``."""

    kind: str
    nodes: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        return self.kind


def fuse(segment: Segment) -> Segment:
    """The segment with groups; what goes in and out stays."""
    return replace(segment, nodes=_schedule(segment.nodes, _groups(segment)))


def parts(segment: Segment) -> list[Node]:
    """The nodes, with those of a group in its place."""
    groups = [node.attrs["group"].nodes if node.op == GROUP else [node] for node in segment.nodes]
    return [node for group in groups for node in group if node.op != DEFERRED]


class _Uses:
    """Which nodes use a value, and which made it, through reshapes."""

    def __init__(self, segment: Segment) -> None:
        self.maker = {node.output: node for node in segment.nodes}
        self.place = {node: index for index, node in enumerate(segment.nodes)}
        self._users: dict[Tensor, list[Node]] = {}
        self._kept = set(segment.outputs)
        for node in segment.nodes:
            for tensor in dict.fromkeys(node.operands()):
                self._users.setdefault(tensor, []).append(node)

    def of(self, tensor: Tensor) -> list[Node] | None:
        """The users of a value, or None if it is also wanted outside."""
        return None if tensor in self._kept else self._users.get(tensor, [])

    def only(self, tensor: Tensor) -> Node | None:
        users = self.of(tensor)
        return users[0] if users is not None and len(users) == 1 else None


def _groups(segment: Segment) -> list[Group]:
    uses = _Uses(segment)
    taken: set[Node] = set()
    groups = []
    for match in (
        _gated,
        _gated_experts,
        _normed_residual,
        _normed,
        _residual,
        _attend,
        _route,
        _expert_sum,
        _convolved,
        _scaled_norm,
    ):
        for node in segment.nodes:
            found = match(node, uses)
            if found is not None and not taken & set(found.nodes):
                taken |= set(found.nodes)
                groups.append(found)
    for node in reversed(segment.nodes):
        found = _elementwise(node, uses, taken)
        if found is not None:
            taken |= set(found.nodes)
            groups.append(found)
    return groups


def _normed(node: Node, uses: _Uses) -> Group | None:
    """An RMS norm that only products use."""
    users = uses.of(node.output)
    if not _is_whole_norm(node) or not users or len(users) > MOST_PRODUCTS:
        return None
    if any(user.op != "linear" or user.inputs["x"] is not node.output for user in users):
        return None
    return Group("normed", [node, *users])


def _normed_residual(node: Node, uses: _Uses) -> Group | None:
    """An RMS norm that only a product uses, which is added to something."""
    normed = _normed(node, uses)
    added = _residual(normed.nodes[1], uses) if normed is not None and len(normed.nodes) == 2 else None
    return Group("normed residual", [node, *added.nodes]) if added is not None else None


def _gated(node: Node, uses: _Uses) -> Group | None:
    """SwiGLU: ``silu(norm(x) @ gate.T) * (norm(x) @ up.T)``."""
    normed = _normed(node, uses)
    if normed is None or len(normed.nodes) != 3:
        return None
    for gate, up in (normed.nodes[1:], normed.nodes[:0:-1]):
        product = uses.only(gate.output)
        if product is None or product.op != "silu_mul" or uses.only(up.output) is not product:
            continue
        if product.operands() == [gate.output, up.output] and _alike(gate, up):
            return Group("gated", [node, gate, up, product])
    return None


def _gated_experts(node: Node, uses: _Uses) -> Group | None:
    """SwiGLU of experts: ``silu(gate(x)) * up(x)``, with the matrices of the same ids."""
    if node.op != "silu_mul":
        return None
    gate, up = (uses.maker.get(tensor) for tensor in node.operands())
    if gate is None or up is None or (gate.op, up.op) != ("mul_mat_id", "mul_mat_id") or not _alike(gate, up):
        return None
    same = all(gate.inputs[name] is up.inputs[name] for name in ("x", "ids"))
    if not same or uses.only(gate.output) is not node or uses.only(up.output) is not node:
        return None
    return Group("gated experts", [gate, up, node])


def _expert_sum(node: Node, uses: _Uses) -> Group | None:
    """The weighed sum of experts' results that is added to something of its shape."""
    add = uses.only(node.output) if node.op == "expert_sum" else None
    if add is None or add.op != "add" or add.inputs["x"] is add.inputs["y"]:
        return None
    if any(tensor.shape != node.output.shape for tensor in add.operands()):
        return None
    return Group("expert sum", [node, add])


def _residual(node: Node, uses: _Uses) -> Group | None:
    """A product that is added to something of its shape."""
    add = uses.only(node.output) if node.op == "linear" else None
    if add is None or add.op != "add" or any(tensor.shape != node.output.shape for tensor in add.operands()):
        return None
    if add.inputs["x"] is add.inputs["y"] or len(node.output.shape) != 2:
        return None
    return Group("residual", [node, add])


def _attend(node: Node, uses: _Uses) -> Group | None:
    """Rotated queries and keys, and the attention that they are for."""
    if node.op != "attention" or "k" not in node.inputs:
        return None
    q, k = (uses.maker.get(node.inputs[name]) for name in "qk")
    if q is None or k is None or (q.op, k.op) != ("rope", "rope") or uses.only(k.output) is not node:
        return None
    if q.attrs != k.attrs or q.inputs["positions"] is not k.inputs["positions"]:
        return None
    if q.inputs["positions"].name != "positions":  # those of the step, which the kernel reads
        return None
    if "v" not in node.inputs or uses.only(q.output) is not node:
        return None
    return Group("attend", [q, k, node])


def _elementwise(last: Node, uses: _Uses, taken: set[Node]) -> Group | None:
    """Operations element by element whose results only the others of them use, up to the last."""
    if last.op not in ELEMENTWISE or last in taken or not isinstance(last.output.shape[0], str):
        return None
    members, reshapes = [last], set[Node]()
    for node in members:  # grows
        for tensor in node.operands():
            maker = uses.maker.get(tensor)
            between = [maker] if maker is not None and maker.op == "reshape" and maker not in taken else []
            maker = uses.maker.get(maker.inputs["x"]) if maker is not None and between else maker
            if maker is None or maker.op not in ELEMENTWISE or maker in taken or maker in members:
                continue
            seen = [tensor, *(each.inputs["x"] for each in between)]
            if not _as_large(tensor, node.output) or not _as_large(seen[-1], tensor):
                continue
            if not all(_only_in(uses.of(each), [*members, *reshapes, *between]) for each in seen):
                continue
            steps = [maker, *members]
            if len(steps) <= MOST_STEPS and len(outer_operands([*steps, *reshapes, *between])) <= MOST_OPERANDS:
                members.append(maker)
                reshapes |= set(between)
    if len(members) < 2:
        return None
    return Group("elementwise", sorted([*members, *reshapes], key=uses.place.__getitem__))


def _as_large(tensor: Tensor, other: Tensor) -> bool:
    """Whether two values have the same elements, one row like the other."""
    return tensor.shape[:1] == other.shape[:1] and row_size(tensor.shape) == row_size(other.shape)


def _only_in(users: list[Node] | None, nodes: Sequence[Node]) -> bool:
    return users is not None and set(users) <= set(nodes)


def outer_operands(nodes: Sequence[Node]) -> list[tuple[Tensor, tuple[int | str, ...]]]:
    """What nodes take that none of them gives, and the shape that it broadcasts to."""
    inner = {node.output for node in nodes}
    outer = [(tensor, node.output.shape) for node in nodes for tensor in node.operands() if tensor not in inner]
    return list(dict.fromkeys(outer))


def _route(node: Node, uses: _Uses) -> Group | None:
    """Which experts a token is sent to, and what they count."""
    if node.op != "expert_ids":
        return None
    for user in uses.of(node.output) or []:
        if user.op == "expert_weights" and user.inputs["logits"] is node.inputs["logits"]:
            return Group("route", [node, user])
    return None


def _convolved(node: Node, uses: _Uses) -> Group | None:
    """A convolution and the SiLU of it."""
    silu = uses.only(node.output) if node.op == "conv1d" else None
    return Group("convolved", [node, silu]) if silu is not None and silu.op == "silu" else None


def _scaled_norm(node: Node, uses: _Uses) -> Group | None:
    """An RMS norm without a weight, times a constant."""
    scale = uses.only(node.output) if node.op == "rms_norm" and "weight" not in node.inputs else None
    if scale is None or scale.op != "scale" or scale.attrs["bias"]:
        return None
    return Group("scaled norm", [node, scale])


def _is_whole_norm(node: Node) -> bool:
    """An RMS norm of whole rows, with a weight."""
    return node.op == "rms_norm" and len(node.inputs["x"].shape) == 2 and "weight" in node.inputs


def _alike(first: Node, second: Node) -> bool:
    """Whether two products without bias have matrices of one type and shape."""
    a, b = first.weight("weight"), second.weight("weight")
    return a.type == b.type and a.shape == b.shape and "bias" not in first.inputs and "bias" not in second.inputs


def _schedule(nodes: Sequence[Node], groups: Sequence[Group]) -> list[Node]:
    """Nodes and groups in levels, each as late as those that need it allow: what is in one level can run at once.

    Within a level they keep their order, and so do all that have a state in common.
    """
    place = {node: index for index, node in enumerate(nodes)}
    unit_of: dict[Node, Group] = {node: group for group in groups for node in group.nodes}
    units = list(dict.fromkeys(unit_of.get(node) or Group("", [node]) for node in nodes))
    units.sort(key=lambda unit: max(place[node] for node in unit.nodes))
    needs = _needs(units)
    level: dict[Group, int] = {}
    order = TopologicalSorter(needs)
    order.prepare()
    while ready := order.get_ready():
        for unit in ready:
            level[unit] = 1 + max((level[needed] for needed in needs[unit]), default=0)
        order.done(*ready)
    latest: dict[Group, int] = {}
    for unit in sorted(units, key=lambda unit: -level[unit]):
        level[unit] = max(level[unit], latest.get(unit, level[unit]))
        for needed in needs[unit]:
            latest[needed] = min(latest.get(needed, level[unit] - 1), level[unit] - 1)
    return [node for unit in sorted(units, key=level.__getitem__) for node in _as_nodes(unit)]


def _needs(units: Sequence[Group]) -> dict[Group, set[Group]]:
    """What each needs to come before it: what makes its operands, and what last used its states."""
    maker = {node.output: unit for unit in units for node in unit.nodes}
    needs: dict[Group, set[Group]] = {}
    last: dict[State, Group] = {}
    for unit in units:
        makers = {maker[tensor] for node in unit.nodes for tensor in node.operands() if tensor in maker}
        states = [part.state for node in unit.nodes for part in node.parts() if part.state is not None]
        needs[unit] = (makers | {last[state] for state in states if state in last}) - {unit}
        last |= dict.fromkeys(states, unit)
    return needs


def _as_nodes(unit: Group) -> list[Node]:
    if not unit.kind:
        return unit.nodes
    *parts, last = unit.nodes
    deferred = [Node(DEFERRED, node.inputs, node.output, {"op": node.op}, node.layer) for node in parts]
    tensors = dict.fromkeys(tensor for node in unit.nodes for tensor in (*node.operands(), node.output))
    del tensors[last.output]
    inputs = {tensor.name: tensor for tensor in tensors}
    return [*deferred, Node(GROUP, inputs, last.output, {"group": unit}, last.layer, expansion=tuple(unit.nodes))]
