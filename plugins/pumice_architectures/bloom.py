"""BLOOM (BigScience 2022, arXiv:2211.05100)."""

from pumice.plugin.nn.decoder import LayerNormDecoder


class Bloom(LayerNormDecoder):
    """ALiBi, and a norm of the embeddings."""

    rope_layers = "none"
    max_bias = 8.0
    embedding_norm = "token_embd_norm"
    ffn, activation = "plain", "gelu"
