"""OpenELM (Mehta et al. 2024, arXiv:2404.14619)."""

from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder


class OpenELM(Decoder):
    """Heads and widths grow from layer to layer; queries and keys are normalized."""

    qk_norm = "before rope"
    scaled = optional.ATTENTION_OUTPUT
