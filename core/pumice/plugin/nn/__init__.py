"""Building blocks of model families: decoders, blocks, rotary positions, and hyperparameters.

A family with a common structure writes one ``layer``; others compose blocks or plain operations.
"""

from pumice.plugin.nn import blocks, pooling, recurrent
from pumice.plugin.nn.decoder import Decoder, LayerNormDecoder
from pumice.plugin.nn.encoder import Encoder, LayerNormEncoder
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import (
    Experts,
    choose_experts,
    expert_linear,
    mixture_of_experts,
    n_expert,
    read_experts,
    read_gate,
    shared_expert,
)
from pumice.plugin.nn.hyper import Heads, alibi_slopes, is_sliding, listed_window, read_heads, slides, sliding_window
from pumice.plugin.nn.latent import latent_attention
from pumice.plugin.nn.rope import (
    Rope,
    frequency_base,
    original_context,
    read_rope,
    rope_sections,
    rotated,
    scaling_factor,
    sliding_rope,
    yarn_mscale,
)

__all__ = [
    "Decoder",
    "Encoder",
    "ExpertDecoder",
    "Experts",
    "Heads",
    "LayerNormDecoder",
    "LayerNormEncoder",
    "Rope",
    "alibi_slopes",
    "blocks",
    "choose_experts",
    "expert_linear",
    "frequency_base",
    "is_sliding",
    "latent_attention",
    "listed_window",
    "mixture_of_experts",
    "n_expert",
    "original_context",
    "pooling",
    "read_experts",
    "read_gate",
    "read_heads",
    "read_rope",
    "recurrent",
    "rope_sections",
    "rotated",
    "scaling_factor",
    "shared_expert",
    "slides",
    "sliding_rope",
    "sliding_window",
    "yarn_mscale",
]
