"""Values that the sections of a configuration leave out, since they are the defaults of transformers' classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Published Gemma 3, LLaVA, Pixtral and Qwen2-Audio models rely on them.
DECODER = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "rms_norm_eps": 1e-6}
GEMMA = {
    "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}  # fmt: skip
ENCODER = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
USUAL: Mapping[str, Mapping[str, Any]] = {
    "llama": DECODER | {"intermediate_size": 11008, "max_position_embeddings": 2048, "vocab_size": 32000},
    "mistral": DECODER | {
        "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
        "sliding_window": 4096, "vocab_size": 32000,
    },
    "qwen2": DECODER | {
        "intermediate_size": 22016, "num_key_value_heads": 32, "max_position_embeddings": 32768, "vocab_size": 151936,
    },
    "gemma2": GEMMA | {"max_position_embeddings": 8192, "vocab_size": 256000},
    "gemma3_text": GEMMA | {"max_position_embeddings": 131072, "vocab_size": 262208},
    "clip_vision_model": ENCODER | {"image_size": 224, "patch_size": 32},
    "siglip_vision_model": ENCODER | {"image_size": 224, "patch_size": 16},
    "pixtral": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 1024, "patch_size": 16,
    },
}  # fmt: skip


def usual(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the defaults of a section, by its ``model_type``."""
    return USUAL.get(str(section.get("model_type")), {})
