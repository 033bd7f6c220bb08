"""StarCoder 2 (Lozhkov et al. 2024, arXiv:2402.19173), and the backbone of pocket-tts (Kyutai 2026)."""

from pumice.plugin.nn.decoder import LayerNormDecoder


class StarCoder2(LayerNormDecoder):
    ffn, activation = "plain", "gelu"
    sliding_layers = "all"


class PocketTTS(StarCoder2):
    neox = False
