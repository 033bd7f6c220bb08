"""Select the optional tensors of a file that a family's graph applies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pumice.plugin import GGMLType, TensorSource

ATTENTION_OUTPUT = frozenset({"attn_output"})
ATTENTION = ATTENTION_OUTPUT | {"attn_q", "attn_k", "attn_v", "attn_qkv"}
QKV_BIASES = frozenset(f"{name}.bias" for name in ATTENTION - ATTENTION_OUTPUT)
FEED_FORWARD_BIASES = frozenset({"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"})
ROPE_FACTORS = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
STATE_SPACE = frozenset({"ssm_in", "ssm_out"})
FEED_FORWARD = frozenset({"ffn_gate", "ffn_up", "ffn_down"})
EXPERTS = frozenset(f"{name}_exps" for name in FEED_FORWARD)
SHARED = frozenset(f"{name}_shexp" for name in FEED_FORWARD)


def applied(
    tensors: Mapping[str, TensorSource], scaled: Callable[[int], Collection[str]], unused: Collection[str]
) -> dict[str, TensorSource]:
    """Return the tensors of a file without unsupported scales and without the ``unused`` ones.

    ``scaled`` returns the scaled matrices of a layer, such as ``attn_output``, or of none (-1); ``unused`` has names
    such as ``attn_output.bias``. An NVFP4 matrix always has its scale, to which the scales of its blocks are relative.
    """

    def is_applied(name: str) -> bool:
        matrix, _, kind = name.rpartition(".")
        layer, _, stem = matrix.rpartition(".")
        if kind != "scale":
            return f"{stem}.{kind}" not in unused
        weight = tensors.get(f"{matrix}.weight")
        return (weight is not None and weight.type == GGMLType.NVFP4) or stem in scaled(_number(layer))

    return {name: tensor for name, tensor in tensors.items() if is_applied(name)}


def _number(layer: str) -> int:
    """Return the number of a layer, 3 for ``blk.3`` and ``blk.3.nextn``; -1 for other names."""
    block, _, number = layer.removesuffix(".nextn").partition(".")
    return int(number) if block == "blk" and number.isdecimal() else -1
