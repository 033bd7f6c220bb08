"""Adapters, applied as the model runs: LoRA (Hu et al. 2021, arXiv:2106.09685) and control vectors (arXiv:2310.01405).

Of matrices that LoRA changes, ``y = W x`` becomes ``y = W x + scale * B (A x)``; a control vector adds ``scale * v`` to
what a layer gives. Files are llama.cpp's; each request has scales of its own.
"""

from pumice.adapters.adapter import Adapter, is_control_vector, read_adapter, read_control_vector
from pumice.adapters.builder import SCALES, AdaptedBuilder
from pumice.adapters.merge import merge

__all__ = ["SCALES", "AdaptedBuilder", "Adapter", "is_control_vector", "merge", "read_adapter", "read_control_vector"]
