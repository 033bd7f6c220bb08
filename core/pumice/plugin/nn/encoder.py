"""The base classes of encoders, which read whole texts without a cache and return hidden states instead of logits."""

from __future__ import annotations

from typing import ClassVar

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.blocks import AttentionOptions
from pumice.plugin.nn.decoder import Decoder, LayerNormDecoder


class Encoder(Decoder):
    """A decoder's layers with attention within the step alone; ``final_norm`` is the last norm's name, if any."""

    final_norm: ClassVar[str] = "output_norm"

    def build(self, g: GraphBuilder) -> None:
        x = g.get_rows(self.layers(g), g.output_ids)
        g.output("hidden", self.norm(g, x, self.final_norm) if self.final_norm else x)

    def sight(self) -> AttentionOptions:
        return {"causal": self.causal, "cache": False}


class LayerNormEncoder(Encoder, LayerNormDecoder):
    """An encoder whose norms are LayerNorm, with or without bias."""
