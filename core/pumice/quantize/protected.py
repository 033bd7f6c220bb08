"""Tensors that keep their type in every quantization (llama.cpp's `llama-quant.cpp`)."""

from collections.abc import Sequence

_NAMES = ("position_embd.weight", "token_types.weight")
_PARTS = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "attn_rel_b.weight",
    # RWKV
    "time_mix_first.weight",
    *(f"time_mix_{name}.weight" for name in ("w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2")),
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    # vision and audio
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)
_PARTS_OF = {
    "glm5-next": (
        "hc_",
        "indexer.attn_q_b",
        "indexer.attn_k",
        "indexer.proj",
        "indexer_compressor_gate",
        "indexer_compressor_ape",
        "ssm_f_a.weight",
        "ssm_f_b.weight",
        "ssm_g_a.weight",
        "ssm_g_b.weight",
        "ssm_beta.weight",
        "attn_kv_a_mqa.weight",
        "attn_k_b.weight",
        "attn_v_b.weight",
    )
}


def is_protected(architecture: str, name: str, shape: Sequence[int]) -> bool:
    """Return True if a tensor keeps its type: vectors, norms, routers, small convolutions, position tables."""
    if len(shape) < 2 or not name.endswith("weight") or name in _NAMES:
        return True
    return any(part in name for part in (*_PARTS, *_PARTS_OF.get(architecture, ())))
