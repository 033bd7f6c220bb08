"""Nemotron 4, Minitron (NVIDIA 2024, arXiv:2402.16819) and Jais 2 (Inception 2025)."""

from pumice.plugin.nn.decoder import LayerNormDecoder


class Nemotron(LayerNormDecoder):
    """LayerNorm, and squared ReLU without a gate. GGUF files store 1 + weight for norms."""

    ffn, activation = "plain", "relu_squared"
