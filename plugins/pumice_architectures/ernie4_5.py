"""ERNIE 4.5, with experts or without (Baidu 2025)."""

from pumice.plugin import HParams
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice_architectures.llama import PlainLlama


class Ernie45(PlainLlama):
    unused = frozenset({"attn_output.bias"})


class Ernie45MoE(ExpertDecoder):
    """Llama's attention; after the dense layers, experts at regular intervals, selected with a bias."""

    neox = False
    unused = Ernie45.unused
    shared = "expert_shared_feed_forward_length"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.step = hparams.positive("interleave_moe_layer_step")

    def is_dense(self, i: int) -> bool:
        return super().is_dense(i) or (i + 1) % self.step != 0
