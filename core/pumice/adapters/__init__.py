"""Adapters applied at run time: LoRA (Hu et al. 2021, arXiv:2106.09685) and control vectors (arXiv:2310.01405).

LoRA changes ``y = W x`` to ``y = W x + scale * B (A x)``; a control vector adds ``scale * v`` to the output of a layer.
Files are llama.cpp's; each request has its own scales.
"""

from pumice.adapters.adapter import Adapter, is_control_vector, read_adapter, read_control_vector
from pumice.adapters.apply import AdaptedGraphs, with_adapters
from pumice.adapters.merge import merge

__all__ = [
    "AdaptedGraphs",
    "Adapter",
    "is_control_vector",
    "merge",
    "read_adapter",
    "read_control_vector",
    "with_adapters",
]
