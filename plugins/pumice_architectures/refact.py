"""Refact 1.6B (Small Magellanic Cloud AI 2023)."""

from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder


class Refact(Decoder):
    """Llama with ALiBi instead of rotary positions."""

    unused = optional.FEED_FORWARD_BIASES | {"attn_output.bias"}
    rope_layers = "none"
    max_bias = 8.0
