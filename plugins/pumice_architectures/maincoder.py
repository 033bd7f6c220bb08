"""Maincoder (Maincode 2025)."""

from pumice.plugin.nn.decoder import Decoder


class Maincoder(Decoder):
    """Llama with queries and keys normalized after RoPE."""

    neox = False
    qk_norm = "after rope"
