"""DeepSeekMoE (Dai et al. 2024, arXiv:2401.06066), and the decoder of DeepSeek-OCR (2025, arXiv:2510.18234)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.rope import Rope, frequency_base


class DeepSeek(ExpertDecoder):
    """Llama's attention; dense layers first, then many small experts and shared ones."""

    neox = False
    normalize = False
    shared = "expert_shared_count"


class DeepSeekOCR(ExpertDecoder):
    gate_of_file = True
    normalize = None
    shared = "expert_shared_count"

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        """Rotate whole heads without scaling, whatever the file says."""
        return Rope(self.heads(i).k_dim, neox=True, freq_base=frequency_base(self.hparams))
