"""The placement pass: which backend runs which node, and where values cross from one to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pumice.errors import BackendError
from pumice.graph.tensor import Graph, Node, State, Tensor, Weight


@dataclass
class Segment:
    """A run of consecutive nodes on one backend. ``inputs`` come from the host, ``outputs`` go back to it."""

    backend: str
    nodes: list[Node]
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def weights(self) -> list[Weight]:
        return [tensor for tensor in self._operands() if isinstance(tensor, Weight)]

    @property
    def states(self) -> list[State]:
        return [tensor for tensor in self._operands() if isinstance(tensor, State)]

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
        name = _first_claim(node, [(b, claim) for b, claim in backends if offloaded or b not in offload])
        if not segments or segments[-1].backend != name:
            segments.append(Segment(name, []))
        segments[-1].nodes.append(node)
    _connect(segments, graph.output)
    return segments


def _first_claim(node: Node, backends: Sequence[tuple[str, Claim]]) -> str:
    for name, claim in backends:
        if claim(node):
            return name
    tried = ", ".join(name for name, _ in backends) or "none"
    raise BackendError(
        f"no backend can run operation {node.op} of {node.output} (tried: {tried}); add numpy to `backends`"
    )


def _connect(segments: list[Segment], result: Tensor) -> None:
    """Fill in what each segment takes from and gives to the others."""
    made_by = {node.output: segment for segment in segments for node in segment.nodes}
    for segment in segments:
        for tensor in segment._operands():
            if isinstance(tensor, (Weight, State)) or made_by.get(tensor) is segment:
                continue
            segment.inputs.append(tensor)
            if tensor in made_by and tensor not in made_by[tensor].outputs:
                made_by[tensor].outputs.append(tensor)
    if result not in made_by[result].outputs:
        made_by[result].outputs.append(result)
