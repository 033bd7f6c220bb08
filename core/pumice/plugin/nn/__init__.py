"""What model families share: decoders, their blocks, rotary positions, and the hyperparameters behind them.

A family that is built like others writes one ``layer``; one that is not takes the blocks, or plain operations.
"""

from pumice.plugin.nn import blocks
from pumice.plugin.nn.decoder import Decoder, LayerNormDecoder
from pumice.plugin.nn.hyper import (
    GATING,
    Experts,
    Heads,
    alibi_slopes,
    is_sliding,
    n_expert,
    read_experts,
    read_heads,
    sliding_window,
)
from pumice.plugin.nn.rope import (
    Rope,
    frequency_base,
    original_context,
    read_rope,
    rope_sections,
    scaling_factor,
    yarn_mscale,
)

__all__ = [
    "GATING",
    "Decoder",
    "Experts",
    "Heads",
    "LayerNormDecoder",
    "Rope",
    "alibi_slopes",
    "blocks",
    "frequency_base",
    "is_sliding",
    "n_expert",
    "original_context",
    "read_experts",
    "read_heads",
    "read_rope",
    "rope_sections",
    "scaling_factor",
    "sliding_window",
    "yarn_mscale",
]
