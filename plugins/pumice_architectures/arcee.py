"""AFM (Arcee AI 2025)."""

from pumice.plugin.nn.decoder import Decoder


class Arcee(Decoder):
    """Llama's layer with squared ReLU and no gate in the feed-forward block."""

    neox = False
    ffn, activation = "plain", "relu_squared"
