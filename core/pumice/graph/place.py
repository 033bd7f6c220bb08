"""Place nodes on devices, and determine the values that cross between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pumice.errors import BackendError
from pumice.graph.shape import N_OUTPUTS
from pumice.graph.tensor import DraftBlock, Graph, Node, State, Tensor, Weight, states_of


@dataclass
class Segment:
    """Consecutive nodes on one device.

    Attributes:
        inputs: values from the host.
        outputs: values for the host.
        device: number of the device within the backend.
        gives_logits: logits are the only output of the graph and of this segment, so its program may pick tokens.
        logits: the graph's logits, a row per output, if the segment is the whole graph; there may be other outputs.
        loop: logits, an output, and the input that it is in the next step, if these are all outputs of the graph.
        stays: the next step of a loop is at the same position, since the graph stores nothing.
        block: blocks of tokens that the segment drafts, if it is the whole graph and does: a step may pick a token
            after each output row.
    """

    backend: str
    nodes: list[Node]
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    device: int = 0
    gives_logits: bool = False
    logits: Tensor | None = None
    loop: tuple[Tensor, Tensor, Tensor] | None = None
    stays: bool = False
    block: DraftBlock | None = None

    @property
    def weights(self) -> list[Weight]:
        """The weights that the nodes read, each once."""
        return [tensor for tensor in self._operands() if isinstance(tensor, Weight)]

    @property
    def states(self) -> list[State]:
        """The caches and recurrent states of the nodes, each once."""
        return states_of(self.nodes)

    def _operands(self) -> list[Tensor]:
        return list(dict.fromkeys(tensor for node in self.nodes for tensor in node.operands()))


Claim = Callable[[Node], bool]


@dataclass(frozen=True)
class Target:
    """A device of a backend, and a predicate for the nodes that it can run."""

    backend: str
    claims: Claim
    device: int = 0


def place(
    graph: Graph, line: Callable[[int], Sequence[Target]], homes: dict[State, Target] | None = None
) -> list[Segment]:
    """Assign each node to the first target in its layer's ``line`` that supports it, and split the graph into segments.

    A node with a state goes to the state's target: ``homes`` has those of earlier graphs, and gets those of this one.
    The input embedding is looked up on the first layer's target; nodes after the last layer are layer ``n_layer``.
    Nodes of one segment keep their order, so segments run in sequence.
    """
    lines = [line(layer) for layer in range(graph.n_layer + 1)]
    segments: list[Segment] = []
    homes = {} if homes is None else homes
    for node in graph.nodes:
        for part, target in _assign(node, lines[max(node.layer, 0)], homes):
            if not segments or (segments[-1].backend, segments[-1].device) != (target.backend, target.device):
                segments.append(Segment(target.backend, [], device=target.device))
            segments[-1].nodes.append(part)
    _connect(segments, list(graph.outputs.values()))
    segments[-1].gives_logits = len(segments[-1].outputs) == 1 and _gives_logits_alone(graph)
    if len(segments) == 1:
        segments[0].loop, segments[0].block = _loop(graph), graph.block
        segments[0].stays = not any(map(_stores, graph.nodes))
        segments[0].logits = _logits_of_rows(graph)
    return segments


def _loop(graph: Graph) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the logits of a graph that drafts, the hidden state that it returns, and the one that it reads."""
    outputs, before = graph.outputs, graph.inputs.get("hidden")
    if set(outputs) != {"logits", "hidden"} or before is None:
        return None
    logits, after = outputs["logits"], outputs["hidden"]
    same = before.shape[1:] == after.shape[1:] and before.dtype == after.dtype
    return (logits, after, before) if same and logits.shape[0] == after.shape[0] == N_OUTPUTS else None


def _stores(node: Node) -> bool:
    """Return True if a node changes a state: it does not only read keys and values."""
    return any(
        part.state is not None and not (part.op == "attention" and "k" not in part.inputs) for part in node.parts()
    )


def _gives_logits_alone(graph: Graph) -> bool:
    return list(graph.outputs) == ["logits"] and _logits_of_rows(graph) is not None


def _logits_of_rows(graph: Graph) -> Tensor | None:
    """Return the logits of a graph if they have a row per output."""
    logits = graph.outputs.get("logits")
    return logits if logits is not None and len(logits.shape) == 2 and logits.shape[0] == N_OUTPUTS else None


def _assign(node: Node, line: Sequence[Target], homes: dict[State, Target]) -> list[tuple[Node, Target]]:
    """Return a node with its target, or the parts of a composite node if its first target supports only some."""
    if node.state in homes:
        line = [homes[node.state]]
    for target in line:
        if target.claims(node):
            homes.update((state, target) for state in states_of([node]))
            return [(node, target)]
        if any(target.claims(part) for part in node.parts()):
            return [assigned for part in node.expansion for assigned in _assign(part, line, homes)]
    tried = ", ".join(target.backend for target in line) or "none"
    raise BackendError(
        f"no backend can run operation {node.op} of {node.output} (tried: {tried}); add numpy to `backends`"
    )


def _connect(segments: list[Segment], results: Sequence[Tensor]) -> None:
    """Set the inputs and outputs of each segment."""
    made_by = {node.output: segment for segment in segments for node in segment.nodes}
    for segment in segments:
        for tensor in segment._operands():
            if isinstance(tensor, Weight) or made_by.get(tensor) is segment:
                continue
            segment.inputs.append(tensor)
            if tensor in made_by and tensor not in made_by[tensor].outputs:
                made_by[tensor].outputs.append(tensor)
    for result in results:
        if result not in made_by[result].outputs:
            made_by[result].outputs.append(result)
