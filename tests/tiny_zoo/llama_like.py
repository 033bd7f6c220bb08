"""Decoders with RMSNorm and SwiGLU, and those that differ from them in little."""

from functools import partial

from tiny_models import ATTENTION, ENDS, EXPERTS, FUSED_ATTENTION, LLAMA, SMALL, SWIGLU, TIED, tiny

BIASES = "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm ffn_gate+ ffn_up+ ffn_down+"
QKV_BIASES = f"attn_norm attn_q+ attn_k+ attn_v+ attn_output {SWIGLU}"
QK_NORMS = f"{LLAMA} attn_q_norm attn_k_norm"
SCALES = "attn_q.scale attn_k.scale attn_v.scale attn_output.scale ffn_gate.scale ffn_up.scale ffn_down.scale"
SIX_HEADS = {"h": 6, "g": 3, "n": 96}

hunyuan_vl = partial(tiny, "hunyuan_vl", QK_NORMS, TIED)
qwen3vl = partial(tiny, layer=QK_NORMS, dims={"d": 32}, rope__dimension_sections=[6, 5, 5, 0])
chameleon = partial(tiny, "chameleon", dims={**SMALL, "h": 4, "d": 4, "V": 8224})
nanbeige = partial(tiny, "nanbeige", LLAMA, num_loops=3)
deci = partial(
    tiny, "deci",
    [
        LLAMA, "ffn_norm ffn_gate=64,n ffn_up=64,n ffn_down=n,64", f"attn_norm attn_output=n,n {SWIGLU}", ATTENTION,
        f"attn_norm attn_q attn_k=d,n attn_v=d,n attn_output+ {SWIGLU}",
    ],
    attention__head_count=[4, 0, 4, 4, 4], attention__head_count_kv=[2, 0, 0, 2, 1],
    feed_forward_length=[96, 64, 96, 0, 96],
)  # fmt: skip

MODELS = {
    "llama-bias": tiny("llama", BIASES),
    "llama-moe": tiny(
        # one matrix for queries, keys and values but a bias for each, and scales on experts
        "llama",
        "attn_norm attn_qkv attn_q.bias attn_k.bias attn_v.bias attn_output "
        f"{EXPERTS} ffn_gate_exps.scale ffn_up_exps.scale ffn_down_exps.scale",
        expert_count=4, expert_used_count=2,
    ),
    "llama-few-keys": tiny(
        # as many heads for keys, all values of a head turn, by what was the only base
        "llama", FUSED_ATTENTION + " " + SWIGLU, TIED, dims={"g": 4},
        **dict.fromkeys(
            ["attention__head_count_kv", "attention__key_length", "attention__value_length", "rope__dimension_count"],
        ),
    ),
    "smollm3": tiny("smollm3", LLAMA, n_layer=4), "internlm2": tiny("internlm2", QKV_BIASES),
    "xverse": tiny("xverse", LLAMA), "ernie4_5": tiny("ernie4_5", QKV_BIASES, TIED),
    "exaone": tiny("exaone", LLAMA, f"{TIED} rope_freqs"), "exaone-untied": tiny("exaone", LLAMA),
    "pangu-embedded": tiny("pangu-embedded", f"attn_norm attn_q+ attn_k+ attn_v+ attn_output+ {SWIGLU}"),
    "seed_oss": tiny("seed_oss", QKV_BIASES.replace("ffn_norm", "post_attention_norm"), dims={"d": 32}),
    "orion": tiny("orion", LLAMA.replace("_norm", "_norm+"), ENDS.replace("_norm", "_norm+"), layer_norm=True),
    "arcee": tiny("arcee", f"{ATTENTION} ffn_norm ffn_up ffn_down", f"{ENDS} rope_freqs"),
    "arcee-tied": tiny("arcee", "attn_norm attn_qkv+ attn_output ffn_norm ffn_up ffn_down", TIED),
    "maincoder": tiny("maincoder", QK_NORMS, TIED),
    "bitnet": tiny("bitnet", f"{LLAMA} attn_sub_norm ffn_sub_norm=f {SCALES}", TIED),
    "bitnet-plain": tiny("bitnet", f"{LLAMA} attn_sub_norm ffn_sub_norm=f", TIED),
    "baichuan-7b": tiny("baichuan", LLAMA, n_layer=32, dims=SMALL),
    "baichuan-13b": tiny("baichuan", LLAMA, n_layer=40, dims=SMALL | {"h": 6, "g": 6, "n": 48}),
    "refact": tiny("refact", LLAMA, TIED), "refact-six-heads": tiny("refact", LLAMA, dims=SIX_HEADS),
    "deci": deci(ends=f"{ENDS} rope_freqs"), "deci-tied": deci(ends=TIED),
    "openelm": tiny(
        "openelm",
        [
            "attn_norm attn_qkv=4*d,n attn_q_norm attn_k_norm attn_output=n,2*d "
            "ffn_norm ffn_gate=64,n ffn_up=64,n ffn_down=n,64",
            f"{FUSED_ATTENTION} attn_q_norm attn_k_norm {SWIGLU}",
        ],
        TIED, attention__head_count=[2, 4], attention__head_count_kv=[1, 2], feed_forward_length=[64, 96],
    ),
    "chameleon": chameleon(
        layer=f"{LLAMA} attn_q_norm=h,d+ attn_k_norm=g,d+ attn_q_norm.bias=h,d attn_k_norm.bias=g,d",
    ),
    "chameleon-34b": chameleon(layer=f"{LLAMA} attn_q_norm=h,d attn_k_norm=g,d", ends=TIED, swin_norm=True),
    "cogvlm": tiny(
        "cogvlm",
        f"{FUSED_ATTENTION} {SWIGLU} vis_attn_qkv=3*h*d,n vis_attn_output=n,h*d vis_gate=f,n vis_up=f,n vis_down=n,f",
        dims={"g": 4}, rope__freq_base=500.0,  # which this family does not heed
    ),
    "talkie": tiny(
        "talkie",
        "attn_q attn_k attn_v attn_output attn_q_norm=h,1 ffn_gate ffn_up ffn_down ffn_down.scale layer_output_scale=1",
        "token_embd output", logit_scale=0.3,
    ),
    "apertus": tiny(
        "apertus", f"{ATTENTION} attn_q_norm attn_k_norm ffn_norm ffn_up ffn_down", f"{ENDS} rope_freqs",
        **{"/xielu.alpha_n": [0.8, 0.2], "/xielu.alpha_p": [0.5, -0.3], "/xielu.beta": 0.5, "/xielu.eps": -1e-6},
    ),
    "apertus-bias": tiny(
        "apertus", "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ attn_q_norm attn_k_norm ffn_norm ffn_up ffn_down",
        **{"/xielu.alpha_n": 0.3, "/xielu.alpha_p": 0.5, "/xielu.beta": [0.5, 0.1], "/xielu.eps": [-1e-6, -1e-6]},
    ),
    "nanbeige": nanbeige(), "nanbeige-no-norm": nanbeige(ends=TIED, skip_loop_final_norm=True),
    "hrm_text": tiny(
        "hrm_text", "attn_q attn_k attn_v attn_gate=h*d,n attn_output ffn_gate ffn_up ffn_down",
        "token_embd hrm.z_l_init=n", n_layer=4, block_count=12, embedding_scale=3.0, hrm__layers_per_stack=2,
        hrm__h_cycles=2, hrm__l_cycles=2,
    ),
    "hunyuan-dense": tiny("hunyuan-dense", QK_NORMS, rope__scaling__alpha=1000.0),
    "hunyuan-dense-bias": tiny("hunyuan-dense", f"{QKV_BIASES} attn_q_norm attn_k_norm", TIED),
    # Its fourth axis, the number of an image, does not turn text in llama.cpp, but in the authors' code.
    "hunyuan_vl": hunyuan_vl(rope__dimension_sections=[2, 3, 3, 0]), "hunyuan_vl-no-sections": hunyuan_vl(),
    "qwen": tiny("qwen", f"attn_norm attn_qkv+ attn_output {SWIGLU}", dims={"g": 4, "f": 48}, feed_forward_length=96),
    "qwen2": tiny("qwen2", QKV_BIASES, TIED, rope__freq_base=1e6),
    "qwen2-output-bias": tiny("qwen2", QKV_BIASES, f"{ENDS}+"), "qwen3": tiny("qwen3", QK_NORMS, dims={"d": 32}),
    "qwen2vl": tiny("qwen2vl", QKV_BIASES, rope__dimension_sections=[2, 3, 3, 0]),
    "qwen2vl-fourth": tiny("qwen2vl", QKV_BIASES, TIED, rope__dimension_sections=[2, 2, 2, 2]),
    "qwen3vl": qwen3vl("qwen3vl", ends=TIED),
    "qwen3tts": qwen3vl("qwen3tts", ends="token_embd output_norm output=3072,n", dims={**SMALL, "d": 32, "V": 3080}),
    "paddleocr": tiny("paddleocr", QKV_BIASES, TIED, rope__dimension_sections=[2, 3, 3, 0]),
}  # fmt: skip
