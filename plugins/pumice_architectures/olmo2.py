"""OLMo 2 (2025, arXiv:2501.00656) and OLMo 3, which adds sliding windows."""

from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.expert_decoder import ExpertDecoder


class Olmo2(Decoder):
    """Norms follow the blocks instead of preceding them."""

    norms_before = ("", "")
    norms_after = ("post_attention_norm", "post_ffw_norm")
    qk_norm = "before rope"
    qk_norm_is_wide = True
    sliding_layers = 4
    own_sliding_rope = unscaled_sliding_rope = True


class FlexOlmo(ExpertDecoder, Olmo2):
    """OLMo 2 with experts (FlexOlmo, Shi et al. 2025, arXiv:2507.07024)."""

    normalize = None
    expert_width = "feed_forward_length"
