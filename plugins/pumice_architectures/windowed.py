"""Decoders of Llama's layers with sliding windows: Ministral 8B (Mistral AI 2024) and CWM (Meta 2025)."""

from pumice.plugin.nn.decoder import Decoder


class WindowedLlama(Decoder):
    """The file says which layers have a window."""

    sliding_layers = "listed"
