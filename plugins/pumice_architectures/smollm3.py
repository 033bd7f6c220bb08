"""SmolLM 3 (Hugging Face 2025)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope

NO_ROPE_STEP = 4  # every fourth layer has no positions (Yang et al. 2025, arXiv:2501.18795)


class SmolLM3(Decoder):
    neox = False

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if (i + 1) % NO_ROPE_STEP else None
