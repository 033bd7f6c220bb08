"""The placement pass: which backend runs which node, and where values cross from one to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pumice.errors import BackendError
from pumice.graph.shape import N_OUTPUTS
from pumice.graph.tensor import Graph, Node, State, Tensor, Weight, states_of


@dataclass
class Segment:
    """A run of consecutive nodes on one backend. ``inputs`` come from the host, ``outputs`` go back to it.

    ``is_whole``: it is all of a graph that gives logits, so its program may generate tokens by itself.
    """

    backend: str
    nodes: list[Node]
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    is_whole: bool = False

    @property
    def weights(self) -> list[Weight]:
        return [tensor for tensor in self._operands() if isinstance(tensor, Weight)]

    @property
    def states(self) -> list[State]:
        return states_of(self.nodes)

    def _operands(self) -> list[Tensor]:
        return list(dict.fromkeys(tensor for node in self.nodes for tensor in node.operands()))


Claim = Callable[[Node], bool]


def place(
    graph: Graph,
    backends: Sequence[tuple[str, Claim]],
    n_gpu_layers: int = -1,
    offload: frozenset[str] = frozenset(),
) -> list[Segment]:
    """Give each node to the first backend in line that claims it, and cut the graph into segments.

    ``backends`` are pairs of a name and a function that says whether the backend can run a node. Backends
    named in ``offload`` (GPUs) get only the last ``n_gpu_layers`` layers, counting what follows the last
    layer as one more, as llama.cpp does; -1 means all. The input embedding is looked up where the
    first layer runs. Nodes of one segment keep their order, so the result runs front to back.
    """
    first_offloaded = graph.n_layer + 1 - n_gpu_layers if n_gpu_layers >= 0 else -1
    segments: list[Segment] = []
    for node in graph.nodes:
        offloaded = max(node.layer, 0) >= first_offloaded and n_gpu_layers != 0
        line = [(name, claim) for name, claim in backends if offloaded or name not in offload]
        for part, name in _assign(node, line):
            if not segments or segments[-1].backend != name:
                segments.append(Segment(name, []))
            segments[-1].nodes.append(part)
    _connect(segments, list(graph.outputs.values()))
    segments[0].is_whole = len(segments) == 1 and _gives_logits_alone(graph)
    return segments


def _gives_logits_alone(graph: Graph) -> bool:
    shapes = {name: tensor.shape for name, tensor in graph.outputs.items()}
    return list(shapes) == ["logits"] and len(shapes["logits"]) == 2 and shapes["logits"][0] == N_OUTPUTS


def _assign(node: Node, backends: Sequence[tuple[str, Claim]]) -> list[tuple[Node, str]]:
    """A node with its backend; of a composite one whose first taker wants a part only, each part with its own."""
    for name, claim in backends:
        if claim(node):
            return [(node, name)]
        if any(claim(part) for part in node.expansion):
            return [assigned for part in node.expansion for assigned in _assign(part, backends)]
    tried = ", ".join(name for name, _ in backends) or "none"
    raise BackendError(
        f"no backend can run operation {node.op} of {node.output} (tried: {tried}); "
        "the backend numpy can, where `backends` has it and its plugin is not disabled"
    )


def _connect(segments: list[Segment], results: Sequence[Tensor]) -> None:
    """Fill in what each segment takes from and gives to the others."""
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
