"""The fusion pass: groups of nodes that one kernel can compute.

A group replaces its last node. Its nodes keep their places in the memory plan, alive from the first node to the last,
so a group can also be lowered node by node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from pumice.plugin import Tensor
from pumice.plugin.unstable import ELEMENTWISE, Node, Segment, State, row_size
from pumice_vulkan.residuals import unscaled

GROUP, DEFERRED = "group", "deferred"  # operations of the node that replaces a group, and of its other nodes
GATES = ("silu_mul", "gelu_mul")
MOST_PRODUCTS = 8  # maximum products that share a norm
MOST_STEPS, MOST_OPERANDS = 8, 5  # limits of shaders/elementwise.comp
ROTATIONS = {"q": 32, "k": 32, "v": 64, "y": 64}  # values that shaders/hadamard.glsl rotates together; y: the result


@dataclass(eq=False)
class Group:
    """Nodes in order, and the kind of their kernel: a key of ``lower.groups``."""

    kind: str
    nodes: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        return self.kind


def fuse(segment: Segment) -> Segment:
    """Return the segment with groups; inputs and outputs are unchanged."""
    segment = unscaled(segment)
    return replace(segment, nodes=_schedule(segment.nodes, _groups(segment)))


def parts(segment: Segment) -> list[Node]:
    """Return the nodes, with groups expanded."""
    groups = [node.attrs["group"].nodes if node.op == GROUP else [node] for node in segment.nodes]
    return [node for group in groups for node in group if node.op != DEFERRED]


class _Uses:
    """The users and producers of values, through reshapes."""

    def __init__(self, segment: Segment) -> None:
        self.maker = {node.output: node for node in segment.nodes}
        self.place = {node: index for index, node in enumerate(segment.nodes)}
        self._users: dict[Tensor, list[Node]] = {}
        self._kept = set(segment.outputs)
        for node in segment.nodes:
            for tensor in dict.fromkeys(node.operands()):
                self._users.setdefault(tensor, []).append(node)

    def of(self, tensor: Tensor) -> list[Node] | None:
        """Return the users of a value, or None if it is also an output."""
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
        _norm_sum,
    ):
        for node in segment.nodes:
            group = match(node, uses)
            if group is not None and not taken & set(group.nodes):
                taken |= set(group.nodes)
                groups.append(group)
    for node in reversed(segment.nodes):
        group = _elementwise(node, uses, taken)
        if group is not None:
            taken |= set(group.nodes)
            groups.append(group)
    return groups


def _normed(node: Node, uses: _Uses) -> Group | None:
    """Match an RMS norm used only by products."""
    users = uses.of(node.output)
    if not _is_whole_norm(node) or not users or len(users) > MOST_PRODUCTS:
        return None
    if any(user.op != "linear" or user.inputs["x"] is not node.output for user in users):
        return None
    return Group("normed", [node, *users])


def _normed_residual(node: Node, uses: _Uses) -> Group | None:
    """Match an RMS norm used only by a product whose result is added to another value."""
    normed = _normed(node, uses)
    added = _residual(normed.nodes[1], uses) if normed is not None and len(normed.nodes) == 2 else None
    return Group("normed residual", [node, *added.nodes]) if added is not None else None


def _gated(node: Node, uses: _Uses) -> Group | None:
    """Match SwiGLU, ``silu(norm(x) @ gate.T) * (norm(x) @ up.T)``, or GEGLU."""
    normed = _normed(node, uses)
    if normed is None or len(normed.nodes) != 3:
        return None
    for gate, up in (normed.nodes[1:], normed.nodes[:0:-1]):
        product = uses.only(gate.output)
        if product is None or product.op not in GATES or uses.only(up.output) is not product:
            continue
        if product.operands() == [gate.output, up.output] and _alike(gate, up):
            return Group("gated", [node, gate, up, product])
    return None


def _gated_experts(node: Node, uses: _Uses) -> Group | None:
    """Match SwiGLU or GEGLU of experts: ``silu(gate(x)) * up(x)``, with equal expert ids."""
    if node.op not in GATES:
        return None
    gate, up = (uses.maker.get(tensor) for tensor in node.operands())
    if gate is None or up is None or (gate.op, up.op) != ("mul_mat_id", "mul_mat_id") or not _alike(gate, up):
        return None
    same = all(gate.inputs[name] is up.inputs[name] for name in ("x", "ids"))
    if not same or uses.only(gate.output) is not node or uses.only(up.output) is not node:
        return None
    return Group("gated experts", [gate, up, node])


def _expert_sum(node: Node, uses: _Uses) -> Group | None:
    """Match a weighted sum of experts' results that is added to a value of its shape."""
    add = uses.only(node.output) if node.op == "expert_sum" else None
    if add is None or add.op != "add" or add.inputs["x"] is add.inputs["y"]:
        return None
    if any(tensor.shape != node.output.shape for tensor in add.operands()):
        return None
    return Group("expert sum", [node, add])


def _residual(node: Node, uses: _Uses) -> Group | None:
    """Match a product that is added to a value of its shape."""
    add = uses.only(node.output) if node.op == "linear" else None
    if add is None or add.op != "add" or any(tensor.shape != node.output.shape for tensor in add.operands()):
        return None
    if add.inputs["x"] is add.inputs["y"] or len(node.output.shape) != 2:
        return None
    return Group("residual", [node, add])


def _attend(node: Node, uses: _Uses) -> Group | None:
    """Match attention, or a store to the cache, with the nodes around it that its kernels compute.

    These are RoPE of queries and keys, with norms of each head if both have one, and rotations around the cache.
    """
    if node.op not in ("attention", "kv_store"):
        return None
    rotations = _rotations(node, uses) if node.state is not None else {}
    ropes = _ropes(node, uses, rotations)
    if not ropes and not rotations:
        return None
    norms = [norm for rope in ropes if (norm := uses.maker.get(rope.inputs["x"])) and _is_head_norm(norm, uses)]
    alike = len(norms) == 2 and norms[0].attrs["eps"] == norms[1].attrs["eps"]
    before, after = [part for name, part in rotations.items() if name != "y"], rotations.get("y")
    return Group("attend", [*(norms if alike else ()), *ropes, *before, node, *([after] if after else ())])


def _ropes(node: Node, uses: _Uses, rotations: Mapping[str, Node]) -> list[Node]:
    """Return RoPE of an attention's queries and keys if both turn alike, by the positions of the step."""
    if not {"q", "k", "v"} <= set(node.inputs):
        return []
    users = {name: rotations.get(name, node) for name in "qk"}
    tensors = {name: user.inputs["x" if name in rotations else name] for name, user in users.items()}
    q, k = (uses.maker.get(tensor) for tensor in tensors.values())
    if q is None or k is None or (q.op, k.op) != ("rope", "rope") or q.attrs != k.attrs:
        return []
    if q.inputs["positions"] is not k.inputs["positions"] or q.inputs["positions"].name != "positions":
        return []
    alone = all(uses.only(tensor) is users[name] for name, tensor in tensors.items())
    return [q, k] if alone else []


def _rotations(node: Node, uses: _Uses) -> dict[str, Node]:
    """Return the Hadamard products of an attention's operands by name, and of its result as "y".

    None if its kernels do not compute all of them.
    """
    around = {name: uses.maker.get(node.inputs[name]) for name in "qkv" if name in node.inputs}
    if node.op == "attention":
        around["y"] = uses.only(node.output)
    rotations = {name: part for name, part in around.items() if part is not None and part.op == "hadamard"}
    for pair in ({"q", "k"}, {"v", "y"}):
        if pair & set(rotations) not in (set(), pair & set(around)):
            return {}
    alone = all(uses.only(part.output) is node for name, part in rotations.items() if name != "y")
    alike = all(part.attrs["size"] == ROTATIONS[name] for name, part in rotations.items())
    return rotations if alone and alike else {}


def _is_head_norm(node: Node, uses: _Uses) -> bool:
    """Return True for a weighted RMS norm of heads that only one operation uses."""
    plain = node.op == "rms_norm" and len(node.inputs["x"].shape) == 3 and "weight" in node.inputs
    return plain and len(node.weight("weight").shape) == 1 and uses.only(node.output) is not None


def _elementwise(last: Node, uses: _Uses, taken: set[Node]) -> Group | None:
    """Match element-wise operations whose results are used only within the group, up to the last."""
    if last.op not in ELEMENTWISE or last in taken or not isinstance(last.output.shape[0], str):
        return None
    members, reshapes = [last], set[Node]()
    for node in members:  # the list grows in the loop
        for tensor in node.operands():
            maker = uses.maker.get(tensor)
            between = [maker] if maker is not None and maker.op == "reshape" and maker not in taken else []
            maker = uses.maker.get(maker.inputs["x"]) if maker is not None and between else maker
            if maker is None or maker.op not in ELEMENTWISE or maker in taken or maker in members:
                continue
            tensors = [tensor, *(reshape.inputs["x"] for reshape in between)]
            if not _as_large(tensor, node.output) or not _as_large(tensors[-1], tensor):
                continue
            if not all(_only_in(uses.of(reshape), [*members, *reshapes, *between]) for reshape in tensors):
                continue
            steps = [maker, *members]
            if len(steps) <= MOST_STEPS and len(outer_operands([*steps, *reshapes, *between])) <= MOST_OPERANDS:
                members.append(maker)
                reshapes |= set(between)
    if len(members) < 2:
        return None
    return Group("elementwise", sorted([*members, *reshapes], key=uses.place.__getitem__))


def _as_large(tensor: Tensor, other: Tensor) -> bool:
    """Return True if two values have equal elements per row."""
    return tensor.shape[:1] == other.shape[:1] and row_size(tensor.shape) == row_size(other.shape)


def _only_in(users: list[Node] | None, nodes: Sequence[Node]) -> bool:
    return users is not None and set(users) <= set(nodes)


def outer_operands(nodes: Sequence[Node]) -> list[tuple[Tensor, tuple[int | str, ...]]]:
    """Return the operands of nodes that no node in the list produces, with the shapes they broadcast to."""
    inner = {node.output for node in nodes}
    outer = [(tensor, node.output.shape) for node in nodes for tensor in node.operands() if tensor not in inner]
    return list(dict.fromkeys(outer))


def _route(node: Node, uses: _Uses) -> Group | None:
    """Match the selection of experts and their weights by the same gate."""
    if node.op != "expert_ids":
        return None
    for user in uses.of(node.output) or []:
        is_alike = user.op == "expert_weights" and user.attrs["gate"] == node.attrs["gate"]
        if is_alike and user.inputs["logits"] is node.inputs["logits"]:
            return Group("route", [node, user])
    return None


def _convolved(node: Node, uses: _Uses) -> Group | None:
    """Match a convolution followed by SiLU."""
    silu = uses.only(node.output) if node.op == "conv1d" else None
    return Group("convolved", [node, silu]) if silu is not None and silu.op == "silu" else None


def _scaled_norm(node: Node, uses: _Uses) -> Group | None:
    """Match an unweighted RMS norm times a constant."""
    scale = uses.only(node.output) if node.op == "rms_norm" and "weight" not in node.inputs else None
    if scale is None or scale.op != "scale" or scale.attrs["bias"]:
        return None
    return Group("scaled norm", [node, scale])


def _norm_sum(node: Node, uses: _Uses) -> Group | None:
    """Match an RMS norm of whole rows that is added to a value of its shape."""
    add = uses.only(node.output) if _is_whole_norm(node) else None
    if add is None or add.op != "add" or add.inputs["x"] is add.inputs["y"]:
        return None
    same = all(tensor.shape == node.output.shape for tensor in add.operands())
    return Group("norm sum", [node, add]) if same else None


def _is_whole_norm(node: Node) -> bool:
    """Return True for a weighted RMS norm of whole rows."""
    return node.op == "rms_norm" and len(node.inputs["x"].shape) == 2 and "weight" in node.inputs


def _alike(first: Node, second: Node) -> bool:
    """Return True if two products without bias have matrices of one type and shape."""
    a, b = first.weight("weight"), second.weight("weight")
    return a.type == b.type and a.shape == b.shape and "bias" not in first.inputs and "bias" not in second.inputs


def _schedule(nodes: Sequence[Node], groups: Sequence[Group]) -> list[Node]:
    """Sort nodes and groups into levels, each as late as its users allow; a level's members can run concurrently.

    Within a level the order is kept, and so is the order of nodes that share a state.
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
    """Return the predecessors of each unit: producers of its operands, and previous users of its states."""
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
