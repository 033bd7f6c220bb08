"""Granite 3, dense and with experts (IBM 2024)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import fused_feed_forward, gated_feed_forward
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import mixture_of_experts, n_expert, read_experts
from pumice.plugin.nn.hyper import sliding_window
from pumice.plugin.nn.rope import Rope
from pumice.plugin.unstable import MediaRules


class Granite(Decoder):
    """Llama with multipliers of embeddings, attention, residual stream and logits. A multiplier of 0 is unset."""

    neox = False
    scales_media = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = hparams.number("embedding_scale", 0.0) or 1.0
        self.attention_scale = hparams.number("attention.scale", 0.0)
        self.residual_scale = hparams.number("residual_scale", 0.0) or 1.0
        self.logit_scale = 1 / self.logit_divisor()
        deepstack = self._deepstack()
        self.media_rules = MediaRules(deepstack=deepstack, scales=self.scales_media and not deepstack)

    def _deepstack(self) -> tuple[int, ...]:
        """Return the layers to whose outputs further embeddings of an image are added, in order of the embeddings.

        The file has the number of such an embedding for each layer whose input it is added to, -1 for others.
        """
        key = "deepstack_mapping"
        numbers = self.hparams.integers(key, ())
        layers = {number: i for i, number in enumerate(numbers) if number >= 0}
        is_used = [i for i, number in enumerate(numbers) if number >= 0]
        if sorted(layers) != list(range(1, 1 + len(is_used))) or not all(0 < i < self.n_layer for i in is_used):
            raise self.hparams.wrong(
                key, f"is {numbers!r:.60}, expected -1, or 1, 2, ... for some layers but the first"
            )
        return tuple(layers[number] - 1 for number in sorted(layers))

    def logit_divisor(self) -> float:
        divisor = self.hparams.number("logit_scale")
        if divisor == 0:
            raise self.hparams.wrong("logit_scale", "is 0, but logits are divided by it")
        return divisor

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, scale=self.attention_scale, **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if not n_expert(self.hparams):
            return super().feed_forward(g, x, blk, i)
        y = mixture_of_experts(g, x, blk, read_experts(self.hparams, i))
        n_ff = self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0)
        return y + self.shared_expert(g, x, blk, n_ff) if n_ff else y

    def shared_expert(self, g: GraphBuilder, x: Tensor, blk: str, n_ff: int) -> Tensor:
        return gated_feed_forward(g, x, blk, n_ff, g.silu, suffix="_shexp")

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.has_positions(i) else None

    def has_positions(self, i: int) -> bool:
        return self.hparams.get_bool("rope.scaling.finetuned", True)  # GGUF's key for this family


class GraniteMoE(Granite):
    def has_positions(self, i: int) -> bool:
        return True


class GraniteSWA(Granite):
    """Sliding windows and attention sinks; the file lists the layers with positions."""

    sinks = True

    def shared_expert(self, g: GraphBuilder, x: Tensor, blk: str, n_ff: int) -> Tensor:
        return fused_feed_forward(g, x, blk, n_ff, g.silu, suffix="_shexp")

    def window(self, i: int) -> int:
        sliding = self.hparams.per_layer("attention.sliding_window_pattern", i + 1)[i]
        return sliding_window(self.hparams) if sliding else 0

    def has_positions(self, i: int) -> bool:
        return bool(self.hparams.per_layer("attention.rope_pattern", i + 1, 1)[i])
