"""Flags of transformers' configurations that deny tensors. transformers ignores such tensors of a checkpoint."""

from __future__ import annotations

import re
from typing import Final

from pumice.convert.folder import HFConfig
from pumice.errors import ConvertError

# Flag, the value that denies tensors, and the pattern of their names.
DENYING: Final = (
    ("attention_bias", False, r"att(n|ention)\.(\w+_proj|query_key_value|dense)\.bias$"),
    ("qkv_bias", False, r"\.[qkv]_proj\.bias$"),
    ("use_qkv_bias", False, r"\.[qkv]_proj\.bias$"),
    ("mlp_bias", False, r"\.mlp\.\w+_proj\.bias$"),
    ("use_bias", False, r"\.([qkvo]_proj|c_fc|c_proj)\.bias$"),
    ("enable_bias", False, r"\.(\w+_proj|fc[12])\.bias$"),
    ("use_conv_bias", False, r"\.conv1d\.bias$"),
    ("mamba_conv_bias", False, r"\.conv1d\.bias$"),
    ("use_expert_bias", False, r"\.expert_bias$"),
    ("decoder_bias", False, r"^decoder\.bias$"),
    ("use_qk_norm", False, r"\.[qk]_norm\."),
    ("qk_layernorm", False, r"\.[qk]_layernorm\."),
    ("use_sandwich_norm", False, r"\.post_(ffn|operator)_norm\."),
    ("layer_norm_elementwise_affine", False, r"layer_norm\."),
    ("_remove_final_layer_norm", True, r"decoder\.final_layer_norm\."),
    ("use_attention_gate", False, r"attn\.g(ate)?_proj\."),
    ("use_parallel_residual", True, r"^model\.layers\.\d+\.post_attention_layernorm\."),
)


def check_flags(config: HFConfig, name: str) -> None:
    """Raise ConvertError if a flag of the configuration's class denies a tensor of the checkpoint."""
    for flag, value, pattern in DENYING:
        if config.has_default(flag) and config.get(flag) is value and re.search(pattern, name):
            raise ConvertError(f"{config.path}: {flag!r} is {str(value).lower()}, but the checkpoint has {name!r}")
