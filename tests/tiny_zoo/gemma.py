"""Gemma and others with norms on both sides of each block."""

from functools import partial
from typing import Any

from tiny_models import ATTENTION, LLAMA, SMALL, TIED, TinyModel, tiny

SANDWICH = f"{LLAMA} post_attention_norm post_ffw_norm"
GEMMA = {"d": 32, "g": 1}

gemma2 = partial(tiny, "gemma2", SANDWICH, TIED, attention__sliding_window=8)

plamo3 = partial(
    tiny,
    "plamo3",
    "attn_norm attn_qkv attn_q_norm attn_k_norm attn_output post_attention_norm!=n "
    "ffn_norm ffn_up=2*f,n ffn_down post_ffw_norm!=n",
    n_layer=3,
)

GIVEN = "inp_gate=w,n proj=n,w post_norm"
ALTUP = (
    f"{GIVEN} altup_router=4,n altup_router_norm altup_predict_coef=16,4 altup_correct_coef=4,4 altup_correct_scale=n "
    "laurel_l=64,n laurel_r=n,64 laurel_post_norm"
)
GIVEN_ENDS = "per_layer_token_embd=V,L*w per_layer_model_proj=L*w,n per_layer_proj_norm=w"
GEMMA3N = {**SMALL, "n": 32, "d": 16, "f": 32, "w": 256, "L": 25}
gemma3n = partial(
    tiny, "gemma3n", f"{SANDWICH} attn_q_norm attn_k_norm {ALTUP}",
    f"{TIED} {GIVEN_ENDS} altup_proj=3,n,n altup_unembd_proj=3,n,n", attention__sliding_window=8, rope__freq_base=1e6,
    rope__scaling__type="linear", rope__scaling__factor=8.0,
)  # fmt: skip
NORMS_4 = "attn_q_norm attn_k_norm post_attention_norm ffn_norm ffn_gate ffn_up ffn_down post_ffw_norm"
GLOBAL = f"{ATTENTION} {NORMS_4}"
SLIDING = (
    "attn_norm attn_q=h*8,n attn_k=g*8,n attn_v=g*8,n attn_output=n,h*8 attn_q_norm=8 attn_k_norm=8 "
    f"{NORMS_4.removeprefix('attn_q_norm attn_k_norm ')}"
)

EXPERTS_4 = (
    "pre_ffw_norm_2 post_ffw_norm_1 post_ffw_norm_2 ffn_gate_inp ffn_gate_inp.scale=n "
    "ffn_down_exps=E,n,32 ffn_down_exps.scale"
)
SPLIT_4 = "ffn_gate_exps=E,32,n ffn_up_exps=E,32,n"


def gemma4(layers: list[str], ends: str = f"{TIED} rope_freqs", **keys: Any) -> TinyModel:
    """A sliding layer's heads have 8 values."""
    pattern = ["attn_q=h*8,n" in layer for layer in layers]
    swa = {f"attention__{kind}_length_swa": 8 for kind in ("key", "value")}
    common = {"attention__sliding_window": 8, "rope__dimension_count_swa": 8, "embedding_length_per_layer_input": 0}
    return tiny(
        "gemma4", layers, ends, attention__sliding_window_pattern=pattern, rope__freq_base=1e6, **common | swa | keys
    )


def without(layer: str, *names: str) -> str:
    return " ".join(entry for entry in layer.split() if entry.partition("=")[0] not in names)


MODELS = {
    "gemma3n": gemma3n(n_layer=25, dims=GEMMA3N),
    "gemma3n-short": gemma3n(n_layer=2, dims=GEMMA3N | {"L": 2}, attention__sliding_window_pattern=2),
    "gemma4": gemma4([SLIDING, without(GLOBAL, "attn_v"), f"{SLIDING} layer_output_scale=1", GLOBAL]),
    "gemma4-moe": gemma4(
        [f"{SLIDING} {EXPERTS_4} ffn_gate_up_exps=E,2*32,n", GLOBAL, f"{GLOBAL} {EXPERTS_4} {SPLIT_4}"], expert_count=4,
        expert_used_count=2, expert_feed_forward_length=32,
    ),
    "gemma4-e2b": gemma4(
        [
            f"{SLIDING} {GIVEN}", f"{GLOBAL} {GIVEN}", f"{without(SLIDING, 'attn_k', 'attn_v', 'attn_k_norm')} {GIVEN}",
            f"{without(GLOBAL, 'attn_k', 'attn_v', 'attn_k_norm')} {GIVEN} layer_output_scale=1",
        ],
        f"{TIED} rope_freqs {GIVEN_ENDS} output", dims={"w": 8, "L": 4}, attention__shared_kv_layers=2,
        embedding_length_per_layer_input=8, final_logit_softcapping=0.0,
    ),
    "plamo3": plamo3(
        attention__sliding_window=8, attention__sliding_window_pattern=2, rope__freq_base=1e6,
        rope__scaling__type="linear", rope__scaling__factor=8.0,
    ),
    "plamo3-no-window": plamo3(ends=TIED), "gemma": tiny("gemma", LLAMA, TIED, dims=GEMMA),
    "gemma2": gemma2(dims=GEMMA, attn_logit_softcapping=2.0), "gemma2-27b": gemma2(dims=SMALL | {"d": 16}, n_layer=46),
    "gemma3": tiny(
        "gemma3", f"{SANDWICH} attn_q_norm attn_k_norm", TIED, n_layer=7, dims=GEMMA, attention__sliding_window=8,
        rope__freq_base=1e6, rope__scaling__type="linear", rope__scaling__factor=8.0,
    ),
}  # fmt: skip
