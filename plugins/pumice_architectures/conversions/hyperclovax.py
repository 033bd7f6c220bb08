"""HyperCLOVA X."""

from pumice.plugin.convert import Conversion


class HyperCLOVAX(Conversion):
    """HyperCLOVA X: multipliers as Granite has them, norms after the blocks in newer models."""

    architecture = "hyperclovax"
    named_as = "granite"
    pre_tokenizers = ["gpt-4o", "gpt-2"]
    integers = {"vocab_size": "vocab_size"}
    numbers = {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }
    defaults = {"logit_scale": 1.0}
    more_names = {
        "model.layers.{}.post_norm1": "blk.{}.post_attention_norm",
        "model.layers.{}.post_norm2": "blk.{}.post_ffw_norm",
    }
    computed = {"post_norm": lambda self: bool(self.config.first("use_post_norm"))}
