"""Masked diffusion: Dream (Ye et al. 2025, arXiv:2508.15487), LLaDA (Nie et al. 2025, arXiv:2502.09992), RND1."""

from __future__ import annotations

from pumice.plugin import HParams
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.unstable import Masks
from pumice_architectures.qwen_moe import Qwen3MoE


def read_masks(hparams: HParams) -> Masks | None:
    """Return the mask token's settings; None if the file has no mask token."""
    token = hparams.metadata.get("tokenizer.ggml.mask_token_id")
    if isinstance(token, bool) or not isinstance(token, int):
        return None
    return Masks(token, bool(hparams.metadata.get("diffusion.shift_logits", True)))


class Dream(Decoder):
    """Qwen 2's layer with bidirectional attention, which rules out a cache."""

    unused = frozenset({"output.bias"})

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = False  # regardless of the file
        self.masks = read_masks(hparams)


class LLaDA(Dream):
    neox = False
    unused = optional.FEED_FORWARD_BIASES | optional.ROPE_FACTORS | {"attn_output.bias"}


class RND1(Qwen3MoE):
    scaled = Decoder.scaled

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = False
        self.masks = read_masks(hparams)


class LLaDAMoE(RND1):
    normalize = False
