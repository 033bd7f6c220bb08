"""dots.llm1 (rednote-hilab 2025, arXiv:2506.05767)."""

from pumice.plugin.nn.expert_decoder import ExpertDecoder


class Dots1(ExpertDecoder):
    """Queries and keys are normalized per head; experts routed as in DeepSeek V3."""

    qk_norm = "before rope"
    gate, gate_of_file = "", True
    normalize = None
    shared = "expert_shared_count"
