"""Decoders of Llama's layers with sliding windows: Ministral 8B (Mistral AI 2024) and CWM (Meta 2025)."""

from __future__ import annotations

from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import listed_window


class WindowedLlama(Decoder):
    """The file says which layers have a window."""

    def window(self, i: int) -> int:
        return listed_window(self.hparams, i)
