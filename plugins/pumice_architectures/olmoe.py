"""OLMoE (Muennighoff et al. 2024, arXiv:2409.02060)."""

from pumice.plugin.nn.expert_decoder import ExpertDecoder


class OlMoE(ExpertDecoder):
    """Queries and keys are normalized over all heads together; expert weights are not normalized."""

    qk_norm = "before rope"
    qk_norm_is_wide = True
    normalize = False
    expert_width = "feed_forward_length"
