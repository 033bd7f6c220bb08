"""Building blocks of model families: decoders, blocks, rotary positions, and hyperparameters.

A family with a common structure writes one ``layer``; others compose blocks or plain operations.
"""

from pumice.plugin.nn import blocks as blocks, pooling as pooling, recurrent as recurrent
from pumice.plugin.nn.decoder import Decoder as Decoder, LayerNormDecoder as LayerNormDecoder
from pumice.plugin.nn.encoder import Encoder as Encoder, LayerNormEncoder as LayerNormEncoder
from pumice.plugin.nn.expert_decoder import ExpertDecoder as ExpertDecoder
from pumice.plugin.nn.experts import (
    Experts as Experts,
    choose_experts as choose_experts,
    expert_linear as expert_linear,
    mixture_of_experts as mixture_of_experts,
    n_expert as n_expert,
    read_experts as read_experts,
    read_gate as read_gate,
    shared_expert as shared_expert,
)
from pumice.plugin.nn.hyper import (
    Heads as Heads,
    alibi_slopes as alibi_slopes,
    is_sliding as is_sliding,
    listed_window as listed_window,
    read_heads as read_heads,
    slides as slides,
    sliding_window as sliding_window,
)
from pumice.plugin.nn.latent import latent_attention as latent_attention
from pumice.plugin.nn.rope import (
    Rope as Rope,
    frequency_base as frequency_base,
    original_context as original_context,
    read_rope as read_rope,
    rope_sections as rope_sections,
    rotated as rotated,
    scaling_factor as scaling_factor,
    sliding_rope as sliding_rope,
    yarn_mscale as yarn_mscale,
)
