"""LoRA adapters: low-rank changes of matrices (Hu et al. 2021, arXiv:2106.09685), applied as the model runs.

``y = W x`` becomes ``y = W x + scale * B (A x)``. Files are llama.cpp's; each request has scales of its own.
"""

from pumice.lora.adapter import Adapter, read_adapter
from pumice.lora.builder import SCALES, AdaptedBuilder
from pumice.lora.merge import merge

__all__ = ["SCALES", "AdaptedBuilder", "Adapter", "merge", "read_adapter"]
