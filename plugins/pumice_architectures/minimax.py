"""MiniMax M2 (2025)."""

from pumice.plugin.nn.expert_decoder import ExpertDecoder


class MiniMaxM2(ExpertDecoder):
    """Queries and keys are normalized over all heads together; experts are chosen with a bias."""

    qk_norm = "before rope"
    qk_norm_is_wide = True
    gate, gate_of_file = "", True
    expert_width = "feed_forward_length"
