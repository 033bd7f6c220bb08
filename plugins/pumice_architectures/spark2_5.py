"""Spark X2.5 (iFLYTEK 2026)."""

from pumice.plugin.nn.decoder import Decoder


class Spark25(Decoder):
    """A gate per head, sliding windows, GELU in the feed-forward block."""

    sliding_layers = "listed"
    own_sliding_rope = True
    attention_gate = "sigmoid"
    activation = "gelu"
