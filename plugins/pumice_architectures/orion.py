"""Orion 14B (Chen et al. 2024, arXiv:2401.12246)."""

from pumice.plugin.nn.decoder import LayerNormDecoder


class Orion(LayerNormDecoder):
    """Llama with LayerNorm."""
