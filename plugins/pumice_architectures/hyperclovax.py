"""HyperCLOVA X (NAVER 2025)."""

from __future__ import annotations

from pumice.plugin import HParams
from pumice_architectures.granite import Granite


class HyperCLOVAX(Granite):
    """Granite whose logits are multiplied; newer models have norms after the blocks, too."""

    neox = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if hparams.get_bool("post_norm", False):
            self.norms_after = ("post_attention_norm", "post_ffw_norm")

    def logit_divisor(self) -> float:
        return 1 / super().logit_divisor()
