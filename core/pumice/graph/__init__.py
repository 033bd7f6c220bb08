"""The computation graph: tensors, operations, tracing, and the passes that prepare it for backends."""

from pumice.graph.builder import GraphBuilder
from pumice.graph.memory import MemoryPlan, plan_memory
from pumice.graph.place import Segment, place
from pumice.graph.show import format_graph
from pumice.graph.tensor import (
    N_OUTPUTS,
    N_TOKENS,
    Graph,
    Input,
    KVState,
    Node,
    RecurrentState,
    State,
    Tensor,
    Weight,
    concrete,
)

__all__ = [
    "N_OUTPUTS",
    "N_TOKENS",
    "Graph",
    "GraphBuilder",
    "Input",
    "KVState",
    "MemoryPlan",
    "Node",
    "RecurrentState",
    "Segment",
    "State",
    "Tensor",
    "Weight",
    "concrete",
    "format_graph",
    "place",
    "plan_memory",
]
