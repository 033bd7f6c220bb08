"""The computation graph: tensors, operations, tracing, and the passes that prepare it for backends."""

from pumice.gguf import TensorSource
from pumice.graph.broadcast import Walk, broadcast_walk
from pumice.graph.builder import GraphBuilder
from pumice.graph.formula import Formula
from pumice.graph.memory import MemoryPlan, plan_memory
from pumice.graph.operation import Operation, Result, composite, operation
from pumice.graph.ops import ELEMENTWISE, OPERATIONS
from pumice.graph.ops.route import GATES
from pumice.graph.place import Segment, Target, place
from pumice.graph.shape import HIDDEN, N_OUTPUTS, N_SEQS, N_TOKENS, Sizes, concrete, fixed, mask_width, row_size
from pumice.graph.show import format_graph
from pumice.graph.source import ArraySource, BlocksSource
from pumice.graph.tensor import (
    DraftBlock,
    Graph,
    Input,
    KVState,
    Node,
    RecurrentState,
    State,
    StepRows,
    Tensor,
    Weight,
    states_of,
)

__all__ = [
    "ELEMENTWISE",
    "GATES",
    "HIDDEN",
    "N_OUTPUTS",
    "N_SEQS",
    "N_TOKENS",
    "OPERATIONS",
    "ArraySource",
    "BlocksSource",
    "DraftBlock",
    "Formula",
    "Graph",
    "GraphBuilder",
    "Input",
    "KVState",
    "MemoryPlan",
    "Node",
    "Operation",
    "RecurrentState",
    "Result",
    "Segment",
    "Sizes",
    "State",
    "StepRows",
    "Target",
    "Tensor",
    "TensorSource",
    "Walk",
    "Weight",
    "broadcast_walk",
    "composite",
    "concrete",
    "fixed",
    "format_graph",
    "mask_width",
    "operation",
    "place",
    "plan_memory",
    "row_size",
    "states_of",
]
