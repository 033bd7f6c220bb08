"""Cases that transformers does not know: configurations and shapes of tensors, as these models' own files have them."""

from typing import Any, NamedTuple

from conversion_cases import COMMON

N_LAYER, N_VOCAB, WIDTH = COMMON["num_hidden_layers"], COMMON["vocab_size"], 32


ABSENT = "absent"  # a value that a configuration does not have


class Written(NamedTuple):
    """A configuration, and the tensors of a checkpoint."""

    config: dict[str, Any]
    shapes: dict[str, list[int]]
    tokenizer: str = "bpe"
    options: tuple[str, ...] = ()
    types: dict[str, tuple[str, list[int] | None]] = {}
    target: str = ""
    """Of a draft: the case of the model that it drafts for."""
    modules: dict[str, dict[str, list[int]]] = {}
    """Further files of tensors in the folder."""


def written(
    model: str, own: dict[str, Any], outside: dict[str, list[int]], layer: dict[str, list[int]], **more: Any
) -> Written:
    """``layer``: shapes in each layer, ``{}`` in names, and of each of 4 experts, where there is a second ``{}``."""
    shapes = dict(outside)
    for name, shape in layer.items():
        for i in range(N_LAYER):
            for expert in range(4) if name.count("{}") > 1 else (0,):
                shapes[name.format(i, expert)] = shape
    config = {"architectures": [model], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **COMMON}
    config = {name: value for name, value in {**config, **own}.items() if value != ABSENT}
    return Written(config, shapes, **more)


OUTSIDE = {
    "model.embed_tokens.weight": [N_VOCAB, WIDTH],
    "model.norm.weight": [WIDTH],
    "lm_head.weight": [N_VOCAB, WIDTH],
}
LAYER = "model.layers.{}."
NORMS = {f"{LAYER}{name}_layernorm.weight": [WIDTH] for name in ("input", "post_attention")}
ATTENTION = {
    f"{LAYER}self_attn.q_proj.weight": [WIDTH, WIDTH],
    f"{LAYER}self_attn.k_proj.weight": [WIDTH // 2, WIDTH],
    f"{LAYER}self_attn.v_proj.weight": [WIDTH // 2, WIDTH],
    f"{LAYER}self_attn.o_proj.weight": [WIDTH, WIDTH],
}


def gated(n_ff: int = 48, name: str = "mlp.") -> dict[str, list[int]]:
    """Gate, up and down."""
    return {
        f"{LAYER}{name}gate_proj.weight": [n_ff, WIDTH],
        f"{LAYER}{name}up_proj.weight": [n_ff, WIDTH],
        f"{LAYER}{name}down_proj.weight": [WIDTH, n_ff],
    }


LLAMA = NORMS | ATTENTION | gated()

BITNET = {f"{LAYER}self_attn.inner_attn_ln.weight": [WIDTH], f"{LAYER}mlp.ffn_layernorm.weight": [48]}
QK_NORMS = {f"{LAYER}self_attn.{which}_norm.weight": [8] for which in "qk"}
ROUTED = NORMS | ATTENTION | gated(24, "mlp.experts.{}.") | {f"{LAYER}mlp.gate.weight": [4, WIDTH]}
SHARED = gated(24, "mlp.shared_experts.")
BIASES = {f"{LAYER}self_attn.{part}_proj.bias": [n] for part, n in (("q", 32), ("k", 16), ("v", 16))}
MOE = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_shared_experts": 1,
    "first_k_dense_replace": 0, "norm_topk_prob": True,
}  # fmt: skip


def mixtral(*names: str, n_ff: int = 24) -> dict[str, list[int]]:
    """Experts of ``block_sparse_moe``: gate, down and up."""
    gate, down, up = (f"{LAYER}block_sparse_moe.experts.{{}}.{name}.weight" for name in names)
    return {gate: [n_ff, WIDTH], down: [WIDTH, n_ff], up: [n_ff, WIDTH]}


def renamed(shapes: dict[str, list[int]], **parts: str) -> dict[str, list[int]]:
    """With parts of names replaced."""
    found = {}
    for name, shape in shapes.items():
        for old, new in parts.items():
            name = name.replace(old, new)
        found[name] = shape
    return found


def without(shapes: dict[str, list[int]], *parts: str) -> dict[str, list[int]]:
    return {name: shape for name, shape in shapes.items() if not any(part in name for part in parts)}


def biased(shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    """With a bias for every weight."""
    return shapes | {name.replace(".weight", ".bias"): shape[:1] for name, shape in shapes.items()}


FUSED = without(LLAMA, "q_proj", "k_proj", "v_proj")
GPT_OUTSIDE = {
    "transformer.wte.weight": [N_VOCAB, WIDTH], "transformer.wpe.weight": [128, WIDTH],
    "transformer.ln_f.weight": [WIDTH],
}  # fmt: skip
GPT = {
    "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 128, "layer_norm_epsilon": 1e-5, "rms_norm_eps": ABSENT,
    "rope_theta": ABSENT, "num_key_value_heads": ABSENT,
}  # fmt: skip
H = "transformer.h.{}."
BERT_LAYER = {
    "encoder.layer.{}.attention.self.query.weight": [32, 32], "encoder.layer.{}.attention.self.key.weight": [32, 32],
    "encoder.layer.{}.attention.self.value.weight": [32, 32], "encoder.layer.{}.attention.output.dense.weight": [32,
    32],
    "encoder.layer.{}.attention.output.LayerNorm.weight": [32],
}  # fmt: skip
BERT_OUTSIDE = {
    "embeddings.word_embeddings.weight": [N_VOCAB, 32], "embeddings.token_type_embeddings.weight": [2, 32],
    "embeddings.LayerNorm.weight": [32], "embeddings.LayerNorm.bias": [32],
}  # fmt: skip
QWEN3_TEXT = {"head_dim": 8, "rope_scaling": {"mrope_section": [2, 1, 1], "rope_type": "default"}}


def packed(wide: dict[str, list[int]], tall: dict[str, list[int]]) -> dict[str, list[int]]:
    """Llama's tensors, of whose feed-forward networks matrices of 48 x 32 and of 32 x 48 are others."""
    found = without(LLAMA, "mlp.")
    for part, shapes in (("gate", wide), ("up", wide), ("down", tall)):
        found |= {f"{LAYER}mlp.{part}_proj.{name}": shape for name, shape in shapes.items()}
    return found


def quantized(**config: Any) -> dict[str, Any]:
    return {"quantization_config": config}


INT4 = {
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16, "strategy": "group", "type": "int"}}}
}
QUANTIZED = {
    "llama-fp8": written(
        "LlamaForCausalLM", quantized(quant_method="fp8", weight_block_size=[32, 16]), OUTSIDE,
        packed({"weight": [48, 32], "weight_scale_inv": [2, 2]}, {"weight": [32, 48], "weight_scale_inv": [1, 3]}),
        types={"mlp.gate_proj.weight": ("F8_E4M3", None), "mlp.up_proj.weight": ("F8_E4M3", None),
               "mlp.down_proj.weight": ("F8_E5M2", None), "scale_inv": ("F32", None)}),
    "llama-gptq": written(
        "LlamaForCausalLM", quantized(quant_method="gptq", bits=4, group_size=16), OUTSIDE,
        packed({"qweight": [4, 48], "qzeros": [2, 6], "scales": [2, 48], "g_idx": [32]},
               {"qweight": [6, 32], "qzeros": [3, 4], "scales": [3, 32], "g_idx": [48]}),
        types={"qweight": ("I32", None), "qzeros": ("I32", None), "scales": ("F16", None),
               "down_proj.g_idx": ("I32", [i // 16 for i in range(48)]),
               "g_idx": ("I32", [i // 16 for i in range(32)])}),
    "llama-packed": written(
        "LlamaForCausalLM", quantized(quant_method="compressed-tensors", format="pack-quantized", **INT4), OUTSIDE,
        packed({"weight_packed": [48, 4], "weight_scale": [48, 2], "weight_shape": [2], "weight_zero_point": [6, 2]},
               {"weight_packed": [32, 6], "weight_scale": [32, 3], "weight_shape": [2]}),
        types={"weight_packed": ("I32", None), "zero_point": ("I32", None), "scale": ("F16", None),
               "down_proj.weight_shape": ("I64", [32, 48]), "weight_shape": ("I64", [48, 32])}),
    "llama-modelopt": written(
        "LlamaForCausalLM", quantized(quant_method="modelopt", quant_algo="FP8"), OUTSIDE,
        packed({"weight": [48, 32], "weight_scale": [1], "input_scale": [1]},
               {"weight": [32, 48], "weight_scale": [1], "input_scale": [1]}),
        types={"scale": ("F32", None), **{f"mlp.{part}_proj.weight": ("F8_E4M3", None) for part in ("gate", "up",
        "down")}}),
    "gpt-oss-mxfp4": written(
        "GptOssForCausalLM", {"head_dim": 8, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
                              "intermediate_size": 32} | quantized(quant_method="mxfp4"), OUTSIDE,
        NORMS | ATTENTION | BIASES | {
            f"{LAYER}self_attn.o_proj.bias": [32], f"{LAYER}self_attn.sinks": [4], f"{LAYER}mlp.router.weight": [4, 32],
            f"{LAYER}mlp.router.bias": [4], f"{LAYER}mlp.experts.gate_up_proj_blocks": [4, 64, 1, 16],
            f"{LAYER}mlp.experts.gate_up_proj_scales": [4, 64, 1], f"{LAYER}mlp.experts.gate_up_proj_bias": [4, 64],
            f"{LAYER}mlp.experts.down_proj_blocks": [4, 32, 1, 16], f"{LAYER}mlp.experts.down_proj_scales": [4, 32, 1],
            f"{LAYER}mlp.experts.down_proj_bias": [4, 32]},
        types={"_blocks": ("U8", None), "_scales": ("U8", None)}),
}  # fmt: skip
QWEN3_NEXT = ROUTED | QK_NORMS | gated(24, "mlp.shared_expert.") | {
    f"{LAYER}self_attn.q_proj.weight": [64, 32], f"{LAYER}mlp.shared_expert_gate.weight": [1, 32],
}  # fmt: skip
KDA = {
    **{f"{LAYER}self_attn.{part}_proj.weight": [32, 32] for part in "qkv"},
    **{f"{LAYER}self_attn.{part}_conv1d.weight": [32, 1, 4] for part in "qkv"},
    f"{LAYER}self_attn.f_a_proj.weight": [8, 32], f"{LAYER}self_attn.f_b_proj.weight": [32, 8],
    f"{LAYER}self_attn.b_proj.weight": [4, 32], f"{LAYER}self_attn.A_log": [1, 1, 4, 1],
    f"{LAYER}self_attn.g_a_proj.weight": [8, 32], f"{LAYER}self_attn.g_b_proj.weight": [32, 8],
    f"{LAYER}self_attn.dt_bias": [32], f"{LAYER}self_attn.o_norm.weight": [8],
    f"{LAYER}self_attn.o_proj.weight": [32, 32],
}  # fmt: skip

WRITTEN = {
    "bitnet": written("BitnetForCausalLM", {}, {name: OUTSIDE[name] for name in list(OUTSIDE)[:2]}, LLAMA | BITNET,
                      tokenizer="spm"),
    "minicpm": written("MiniCPMForCausalLM", {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16}, OUTSIDE,
                       LLAMA, tokenizer="spm"),
    "maincoder": written("MaincoderForCausalLM", {"head_dim": 8}, OUTSIDE, LLAMA | QK_NORMS),
    "pangu": written("PanguEmbeddedForCausalLM", {}, OUTSIDE, LLAMA | BIASES, tokenizer="spm"),
    "llama-embed": written("LlamaBidirectionalModel", {}, renamed(without(OUTSIDE, "lm_head"), **{"model.": ""}),
                           renamed(LLAMA, **{"model.": ""}), tokenizer="spm"),
    "nanbeige": written("NanbeigeForCausalLM", {"num_loops": 2}, OUTSIDE, LLAMA, tokenizer="spm"),
    "orion": written("OrionForCausalLM", {}, OUTSIDE | {"model.norm.bias": [32]}, LLAMA | {
        name.replace("weight", "bias"): shape for name, shape in NORMS.items()}, tokenizer="spm"),
    "internlm2": written(
        "InternLM2ForCausalLM", {"vocab_size": N_VOCAB - 4},
        {"model.tok_embeddings.weight": [N_VOCAB - 4, 32], "model.norm.weight": [32],
         "output.weight": [N_VOCAB - 4, 32]},
        {f"{LAYER}attention_norm.weight": [32], f"{LAYER}ffn_norm.weight": [32],
        f"{LAYER}attention.wqkv.weight": [64, 32],
         f"{LAYER}attention.wo.weight": [32, 32], f"{LAYER}feed_forward.w1.weight": [48, 32],
         f"{LAYER}feed_forward.w2.weight": [32, 48], f"{LAYER}feed_forward.w3.weight": [48, 32]}, tokenizer="spm"),
    "internlm3": written("InternLM3ForCausalLM", {}, OUTSIDE, LLAMA, tokenizer="spm"),
    "plm": written("PLMForCausalLM", {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 8},
                   without(OUTSIDE, "lm_head"), NORMS | {
        f"{LAYER}self_attn.q_proj.weight": [64, 32], f"{LAYER}self_attn.kv_a_proj_with_mqa.weight": [24, 32],
        f"{LAYER}self_attn.kv_a_layernorm.weight": [16], f"{LAYER}self_attn.kv_b_proj.weight": [64, 16],
        f"{LAYER}self_attn.o_proj.weight": [32, 32], f"{LAYER}mlp.up_proj.weight": [48, 32],
        f"{LAYER}mlp.down_proj.weight": [32, 48]}),
    "exaone": written(
        "ExaoneForCausalLM", {"activation_function": "silu", "layer_norm_epsilon": 1e-5, "num_layers": 2},
        {"transformer.wte.weight": [N_VOCAB, 32], "transformer.ln_f.weight": [32], "lm_head.weight": [N_VOCAB, 32]},
        {f"{H}ln_1.weight": [32], f"{H}ln_2.weight": [32], f"{H}attn.attention.q_proj.weight": [32, 32],
         f"{H}attn.attention.k_proj.weight": [16, 32], f"{H}attn.attention.v_proj.weight": [16, 32],
         f"{H}attn.attention.out_proj.weight": [32, 32], f"{H}mlp.c_fc_0.weight": [48, 32],
         f"{H}mlp.c_fc_1.weight": [48, 32], f"{H}mlp.c_proj.weight": [32, 48]}),
    "openelm": written(
        "OpenELMForCausalLM",
        {"num_transformer_layers": 2, "ffn_multipliers": [0.5, 1.0], "ffn_dim_divisor": 16, "model_dim": 32,
        "head_dim": 8,
         "num_kv_heads": [1, 2], "num_query_heads": [2, 4], "max_context_length": 128, "rope_freq_constant": 10000},
        {"transformer.token_embeddings.weight": [N_VOCAB, 32], "transformer.norm.weight": [32]} | {
            f"transformer.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in {
                "attn_norm": [32], "ffn_norm": [32], "attn.q_norm": [8], "attn.k_norm": [8],
                "attn.qkv_proj": [(i + 1) * 32, 32], "attn.out_proj": [32, (i + 1) * 16],
                "ffn.proj_1": [(i + 1) * 32, 32], "ffn.proj_2": [32, (i + 1) * 16]}.items()}, {}, tokenizer="spm"),
    "codeshell": written(
        "CodeShellForCausalLM", {**GPT, "num_query_groups": 2}, biased(without(GPT_OUTSIDE, "wpe", "wte")) | {
            "transformer.wte.weight": [N_VOCAB, 32], "lm_head.weight": [N_VOCAB, 32]},
        biased({f"{H}ln_1.weight": [32], f"{H}ln_2.weight": [32], f"{H}attn.c_attn.weight": [64, 32],
                f"{H}attn.c_proj.weight": [32, 32], f"{H}mlp.c_fc.weight": [128, 32], f"{H}mlp.c_proj.weight": [32,
                128]})),
    "refact": written(
        "GPTRefactForCausalLM", GPT, {"transformer.wte.weight": [N_VOCAB, 32], "transformer.ln_f.weight": [32],
                                      "lm_head.weight": [N_VOCAB, 32]},
        {f"{H}ln_1.weight": [32], f"{H}ln_2.weight": [32], f"{H}attn.q.weight": [32, 32], f"{H}attn.kv.weight": [16,
        32],
         f"{H}attn.c_proj.weight": [32, 32], f"{H}mlp.gate_up_proj.weight": [512, 32],
         f"{H}mlp.c_proj.weight": [32, 256]}),
    "jais": written(
        "JAISLMHeadModel", {**GPT, "n_inner": 48, "activation_function": "swiglu", "position_embedding_type": "alibi",
                            "embeddings_scale": 2.5, "width_scale": 0.25},
        biased({"transformer.ln_f.weight": [32]}) | {
            "transformer.wte.weight": [N_VOCAB, 32], "lm_head.weight": [N_VOCAB, 32]},
        biased({f"{H}ln_1.weight": [32], f"{H}ln_2.weight": [32]}) | {
            f"{H}attn.c_attn.weight": [32, 96], f"{H}attn.c_attn.bias": [96], f"{H}attn.c_proj.weight": [32, 32],
            f"{H}attn.c_proj.bias": [32], f"{H}mlp.c_fc.weight": [32, 48], f"{H}mlp.c_fc.bias": [48],
            f"{H}mlp.c_fc2.weight": [32, 48], f"{H}mlp.c_fc2.bias": [48], f"{H}mlp.c_proj.weight": [48, 32],
            f"{H}mlp.c_proj.bias": [32]}),
    "deepseek": written("DeepseekForCausalLM", MOE | {"n_routed_experts": 4, "n_shared_experts": 1}, OUTSIDE,
                        ROUTED | SHARED),
    "smallthinker": written("SmallThinkerForCausalLM", {
        "moe_num_primary_experts": 4, "moe_num_active_primary_experts": 2, "moe_ffn_hidden_size": 24, "head_dim": 8,
        "sliding_window_layout": [1, 1], "sliding_window_size": 8}, OUTSIDE,
        NORMS | ATTENTION | mixtral("gate", "down", "up") | {f"{LAYER}block_sparse_moe.primary_router.weight": [4,
        32]}),
    "grovemoe": written("GroveMoeForCausalLM", MOE | {"head_dim": 8}, OUTSIDE, ROUTED | QK_NORMS | {
        f"model.layers.{{}}.mlp.chunk_experts.{i}.{part}_proj.weight": [32, 8] if part == "down" else [8, 32]
        for i in range(2) for part in ("gate", "up", "down")}),
    "dream": written("DreamModel", {"mask_token_id": 5}, OUTSIDE, LLAMA | BIASES),
    "rnd1": written("RND1", MOE | {"mask_token_id": 5, "head_dim": 8}, OUTSIDE, ROUTED | QK_NORMS),
    "llada-moe": written("LLaDAMoEModelLM", MOE | {"expert_intermediate_size": 24}, OUTSIDE, ROUTED | QK_NORMS),
    "llada": written(
        "LLaDAModelLM", {"n_layers": 2, "d_model": 32, "n_heads": 4, "n_kv_heads": 4, "mlp_hidden_size": 48,
                         "max_sequence_length": 128},
        {"model.transformer.wte.weight": [N_VOCAB, 32], "model.transformer.ln_f.weight": [32],
         "model.transformer.ff_out.weight": [N_VOCAB, 32]},
        {f"model.transformer.blocks.{{}}.{name}.weight": shape for name, shape in {
            "attn_norm": [32], "ff_norm": [32], "q_proj": [32, 32], "k_proj": [16, 32], "v_proj": [16, 32],
            "attn_out": [32, 32], "ff_proj": [48, 32], "up_proj": [48, 32], "ff_out": [32, 48]}.items()}),
    "bailingmoe": written(
        "BailingMoeForCausalLM", MOE | {"norm_head": True, "head_dim": 8},
        renamed(OUTSIDE, embed_tokens="word_embeddings"),
        renamed(without(ROUTED, "self_attn")) | SHARED | {
            f"{LAYER}attention.query_key_value.weight": [64, 32], f"{LAYER}attention.dense.weight": [32, 32]}),
    "bailingmoe2": written(
        "BailingMoeV2ForCausalLM", MOE | {"head_dim": 8, "routed_scaling_factor": 2.5, "score_function": "sigmoid"},
        renamed(OUTSIDE, embed_tokens="word_embeddings"), without(ROUTED, "self_attn") | SHARED | {
            f"{LAYER}attention.query_key_value.weight": [64, 32], f"{LAYER}attention.dense.weight": [32, 32],
            f"{LAYER}attention.query_layernorm.weight": [8], f"{LAYER}attention.key_layernorm.weight": [8],
            f"{LAYER}mlp.gate.expert_bias": [4]}),
    "grok": written(
        "Grok1ForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2, "embedding_multiplier_scale": 4.0,
                             "output_multiplier_scale": 0.5, "head_dim": 8}, OUTSIDE,
        ATTENTION | mixtral("w1", "w2", "w3", n_ff=48) | {
            f"{LAYER}block_sparse_moe.gate.weight": [4, 32], f"{LAYER}pre_attn_norm.weight": [32],
            f"{LAYER}post_attn_norm.weight": [32], f"{LAYER}pre_moe_norm.weight": [32],
            f"{LAYER}post_moe_norm.weight": [32]}, tokenizer="spm"),
    "neo-bert": written(
        "NeoBERT", {"rms_norm_eps": ABSENT, "num_key_value_heads": ABSENT}, {"model.encoder.weight": [N_VOCAB, 32],
        "model.layer_norm.weight": [32]},
        {f"model.transformer_encoder.{{}}.{name}.weight": shape for name, shape in {
            "attention_norm": [32], "ffn_norm": [32], "qkv": [96, 32], "wo": [32, 32], "ffn.w12": [64, 32],
            "ffn.w3": [32, 32]}.items()}, tokenizer="wordpiece"),
    "nomic-bert": written(
        "NomicBertModel", {
            "n_positions": 8192, "n_embd": 32, "n_head": 4, "n_inner": 48, "n_layer": 2,
            "activation_function": "swiglu",
            "causal": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "type_vocab_size": 2,
            "max_position_embeddings": ABSENT, "num_key_value_heads": ABSENT},
        renamed(BERT_OUTSIDE, **{"embeddings.LayerNorm": "emb_ln"}),
        {f"encoder.layers.{{}}.{name}.weight": shape for name, shape in {
            "attn.Wqkv": [96, 32], "attn.out_proj": [32, 32], "norm1": [32], "norm2": [32], "mlp.fc11": [48, 32],
            "mlp.fc12": [48, 32], "mlp.fc2": [32, 48]}.items()}, tokenizer="wordpiece"),
    "jina-bert-v2": written(
        "JinaBertModel", {"layer_norm_eps": 1e-12, "type_vocab_size": 2, "num_key_value_heads": ABSENT}, BERT_OUTSIDE,
        BERT_LAYER | {
            "encoder.layer.{}.mlp.gated_layers.weight": [96, 32], "encoder.layer.{}.mlp.wo.weight": [32, 48],
            "encoder.layer.{}.mlp.wo.bias": [32], "encoder.layer.{}.mlp.layernorm.weight": [32]},
            tokenizer="wordpiece"),
    "qwen2vl": written(
        "Qwen2VLForConditionalGeneration", {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
        OUTSIDE | {"visual.patch_embed.proj.weight": [8, 8]}, LLAMA | BIASES),
    "qwen3vl": written(
        "Qwen3VLForConditionalGeneration", {
            "text_config": QWEN3_TEXT, "vision_config": {"deepstack_visual_indexes": [1, 2, 3]}},
        renamed(OUTSIDE, **{"model.": "model.language_model."}) | {"model.visual.blocks.0.attn.proj.weight": [8, 8]},
        renamed(LLAMA | QK_NORMS, **{"model.": "model.language_model."})),
    "qwen3vlmoe": written(
        "Qwen3VLMoeForConditionalGeneration", {
            "text_config": QWEN3_TEXT | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
            "vision_config": {"deepstack_visual_indexes": [1]}},
        renamed(OUTSIDE, **{"model.": "model.language_model."}),
        renamed(NORMS | ATTENTION | QK_NORMS | {
            f"{LAYER}mlp.gate.weight": [4, 32], f"{LAYER}mlp.experts.gate_up_proj": [4, 32, 48],
            f"{LAYER}mlp.experts.down_proj": [4, 24, 32]}, **{"model.": "model.language_model."})),
    "rwkv6": written(
        "Rwkv6ForCausalLM", {"head_size": 8, "layer_norm_epsilon": 1e-5, "rescale_every": 1, "intermediate_size": 96},
        {"rwkv.embeddings.weight": [N_VOCAB, 32], "rwkv.ln_out.weight": [32], "rwkv.ln_out.bias": [32],
         "rwkv.blocks.0.pre_ln.weight": [32], "rwkv.blocks.0.pre_ln.bias": [32], "head.weight": [N_VOCAB, 32]},
        {f"rwkv.blocks.{{}}.{name}": shape for name, shape in {
            **{f"{ln}.{side}": [32] for ln in ("ln1", "ln2", "attention.ln_x") for side in ("weight", "bias")},
            **{f"attention.time_maa_{part}": [1, 1, 32] for part in "xwkvrg"},
            "attention.time_maa_w1": [32, 160], "attention.time_maa_w2": [5, 32, 32],
            "attention.time_decay": [1, 1, 32], "attention.time_decay_w1": [32, 64], "attention.time_decay_w2": [64,
            32],
            "attention.time_faaaa": [4, 8],
            **{f"attention.{part}.weight": [32, 32] for part in ("receptance", "key", "value", "gate", "output")},
            "feed_forward.time_maa_k": [1, 1, 32], "feed_forward.time_maa_r": [1, 1, 32],
            "feed_forward.key.weight": [96, 32], "feed_forward.value.weight": [32, 96],
            "feed_forward.receptance.weight": [32, 32]}.items()}, tokenizer="rwkv"),
    "rwkv7": written(
        "RWKV7ForCausalLM", {
            "head_dim": 8, "norm_eps": 1e-5, "intermediate_size": 96, "decay_low_rank_dim": 8, "a_low_rank_dim": 8,
            "v_low_rank_dim": 8, "gate_low_rank_dim": 16},
        {"model.embeddings.weight": [N_VOCAB, 32], "model.norm.weight": [32], "model.norm.bias": [32],
         "lm_head.weight": [N_VOCAB, 32], "model.layers.0.pre_norm.weight": [32], "model.layers.0.pre_norm.bias": [32],
         "model.layers.1.attn.v_lora.lora.0.weight": [8, 32], "model.layers.1.attn.v_lora.lora.2.weight": [32, 8],
         "model.layers.1.attn.v_lora.lora.2.bias": [32]},
        {f"{LAYER}{name}": shape for name, shape in {
            **{f"{norm}.{side}": [32] for norm in ("attn_norm", "ffn_norm", "attn.g_norm") for side in ("weight",
            "bias")},
            **{f"attn.x_{part}": [1, 1, 32] for part in "rwkvag"}, "attn.k_k": [32], "attn.k_a": [32],
            "attn.r_k": [4, 8],
            **{f"attn.{part}_proj.weight": [32, 32] for part in "rkvo"},
            "attn.w_lora.lora.0.weight": [8, 32], "attn.w_lora.lora.2.weight": [32, 8], "attn.w_lora.lora.2.bias": [32],
            "attn.a_lora.lora.0.weight": [8, 32], "attn.a_lora.lora.2.weight": [32, 8], "attn.a_lora.lora.2.bias": [32],
            "attn.g_lora.lora.0.weight": [16, 32], "attn.g_lora.lora.2.weight": [32, 16],
            "ffn.x_k": [32], "ffn.key.weight": [96, 32], "ffn.value.weight": [32, 96]}.items()}, tokenizer="rwkv"),
    "qwen3next-drafts": written(
        "Qwen3NextForCausalLM", MOE | {
            "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "layer_types": ["full_attention"] * 2,
            "shared_expert_intermediate_size": 24},
        OUTSIDE | {"mtp.fc.weight": [32, 64], "mtp.norm.weight": [32], "mtp.pre_fc_norm_embedding.weight": [32],
                   "mtp.pre_fc_norm_hidden.weight": [32]}
        | {name.format(0, i).replace("model.", "mtp."): shape for name, shape in QWEN3_NEXT.items() for i in range(4)},
        QWEN3_NEXT),
    "glm4moe-drafts": written(
        "Glm4MoeForCausalLM", MOE | {"n_routed_experts": 4, "n_shared_experts": 1, "num_nextn_predict_layers": 1,
                                     "head_dim": 8, "routed_scaling_factor": 1.5, "num_hidden_layers": 1},
        OUTSIDE | {f"model.layers.1.{name}.weight": shape for name, shape in {
            "eh_proj": [32, 64], "enorm": [32], "hnorm": [32], "shared_head.norm": [32]}.items()},
        ROUTED | SHARED | BIASES | {f"{LAYER}mlp.gate.e_score_correction_bias": [4]}, tokenizer="glm"),
    "sarvam": written(
        "SarvamMoEForCausalLM", MOE | {"head_dim": 8, "routed_scaling_factor": 2.5, "score_function": "sigmoid"},
        renamed(OUTSIDE, embed_tokens="word_embeddings"), without(ROUTED, "self_attn") | SHARED | {
            f"{LAYER}attention.query_key_value.weight": [64, 32], f"{LAYER}attention.dense.weight": [32, 32],
            f"{LAYER}attention.query_layernorm.weight": [8], f"{LAYER}attention.key_layernorm.weight": [8],
            f"{LAYER}mlp.gate.expert_bias": [4]},
        types={"expert_bias": ("F32", None)}),
    "chameleon": written("ChameleonForConditionalGeneration", {"swin_norm": False, "num_key_value_heads": 4},
    OUTSIDE, LLAMA | {
        f"{LAYER}self_attn.q_norm.weight": [4, 8], f"{LAYER}self_attn.k_norm.weight": [4, 8],
        f"{LAYER}self_attn.k_proj.weight": [32, 32], f"{LAYER}self_attn.v_proj.weight": [32, 32]}),
    "granite_swa": written("GraniteSWAForCausalLM", {
        "sliding_window": 8, "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 4.0,
        "attention_multiplier": 0.25}, OUTSIDE, LLAMA | {f"{LAYER}self_attn.sinks": [4]}),
    "janus": written("JanusForConditionalGeneration", {}, renamed(OUTSIDE, **{"model.": "model.language_model."}) | {
        "model.vision_model.post_layernorm.weight": [8]}, renamed(LLAMA, **{"model.": "model.language_model."})),
    "paddleocr": written("PaddleOCRVLForConditionalGeneration", {
        "rope_scaling": {"mrope_section": [2, 1, 1], "rope_type": "default"}}, OUTSIDE | {
        "visual.vision_model.post_layernorm.weight": [8]}, LLAMA, tokenizer="spm"),
    "exaone4_5": written(
        "Exaone4_5_ForConditionalGeneration", {"num_nextn_predict_layers": 1, "sliding_window": None},
        renamed(OUTSIDE, **{"model.": "model.language_model."}) | {
            "mtp.fc.weight": [32, 64], "mtp.norm.weight": [32], "mtp.pre_fc_norm_embedding.weight": [32],
            "mtp.pre_fc_norm_hidden.weight": [32], "mtp.layers.0.self_attn.q_proj.weight": [32, 32]},
        renamed(without(LLAMA, "input_layernorm") | QK_NORMS | {f"{LAYER}post_feedforward_layernorm.weight": [32]},
                **{"model.": "model.language_model."})),
    "glm-ocr": written(
        "GlmOcrForConditionalGeneration", {"num_nextn_predict_layers": 1, "num_hidden_layers": 1}, OUTSIDE | {
            "model.layers.1.eh_proj.weight": [32, 64], "model.layers.1.enorm.weight": [32]},
        NORMS | ATTENTION | {f"{LAYER}post_self_attn_layernorm.weight": [32], f"{LAYER}post_mlp_layernorm.weight": [32],
                             f"{LAYER}mlp.gate_up_proj.weight": [96, 32], f"{LAYER}mlp.down_proj.weight": [32, 48]},
        tokenizer="glm"),
    "spark2_5": written(
        "Spark2_5ForCausalLM", {
            "head_dim": 8, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
            "gate_attn_act_mode": "sigmoid", "headwise_attn_output_gate": True, "hidden_act": "gelu",
            "rope_parameters": {kind: {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": part}
                                for kind, part in (("full_attention", 0.5), ("sliding_attention", 1.0))}},
        OUTSIDE, FUSED | {f"{LAYER}self_attn.q_k_v_proj.weight": [64, 32], f"{LAYER}self_attn.g_proj.weight": [4, 32]}),
    "talkie": written(
        "TalkieForCausalLM", {"head_dim": 8, "rms_norm_eps": ABSENT, "num_key_value_heads": 4},
        {"model.embed.weight": [N_VOCAB, 32], "lm_head": [N_VOCAB, 32], "lm_head_gain.w_g": [1]},
        {f"model.blocks.{{}}.{name}": shape for name, shape in {
            **{f"attn.attn_{part}.weight": [32, 32] for part in ("query", "key", "value", "resid")},
            "attn.head_gain.head_g": [4], "attn_gain.a_g": [1], "mlp_gain.a_g": [1], "embed_skip.a_g": [1],
            "mlp.mlp_gate.weight": [48, 32], "mlp.mlp_linear.weight": [48, 32],
            "mlp.mlp_resid.weight": [32, 48]}.items()}),
    "kimi-linear": written(
        "KimiLinearForCausalLM", {
            "linear_attn_config": {"full_attn_layers": [], "short_conv_kernel_size": 4, "head_dim": 8},
            "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "head_dim": 8,
            "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 24, "num_shared_experts": 1,
            "first_k_dense_replace": 0, "routed_scaling_factor": 2.5, "moe_router_activation_func": "sigmoid"},
        OUTSIDE, NORMS | KDA | mixtral("w1", "w2", "w3") | gated(24, "block_sparse_moe.shared_experts.") | {
            f"{LAYER}block_sparse_moe.gate.weight": [4, 32],
            f"{LAYER}block_sparse_moe.gate.e_score_correction_bias": [4]}),
    "step35": written(
        "Step3p5ForCausalLM", {
            "head_dim": 8, "num_attention_groups": 2, "layer_types": ["full_attention", "full_attention"],
            "partial_rotary_factors": [0.5, 0.5], "rope_theta": [500000.0, 10000.0], "sliding_window": 8,
            "num_key_value_heads": ABSENT, "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 24,
            "share_expert_dim": 24, "moe_layers_enum": "0,1", "moe_router_scaling_factor": 3.0,
            "norm_expert_weight": True, "swiglu_limits": [None, 7.0]},
        OUTSIDE, NORMS | ATTENTION | QK_NORMS | gated(24, "share_expert.") | {
            f"{LAYER}self_attn.g_proj.weight": [4, 32], f"{LAYER}moe.gate.weight": [4, 32],
            f"{LAYER}moe.router_bias": [4], f"{LAYER}moe.gate_proj.weight": [4, 24, 32],
            f"{LAYER}moe.up_proj.weight": [4, 24, 32], f"{LAYER}moe.down_proj.weight": [4, 32, 24]}),
    "plamo2": written(
        "Plamo2ForCausalLM", {
            "mamba_num_heads": 4, "hidden_size_per_head": 16, "mamba_d_state": 8, "mamba_enabled": True,
            "mamba_step": 2},
        {"model.embed_tokens.weight": [N_VOCAB, 32], "model.norm.weight": [32]} | {
            f"model.layers.layers.{i}.{name}": shape for i in range(2) for name, shape in {
                **{f"{norm}_norm.weight": [32] for norm in ("pre_mixer", "post_mixer", "pre_mlp", "post_mlp")},
                "mlp.gate_up_proj.weight": [96, 32], "mlp.down_proj.weight": [32, 48],
                **({"mixer.A_log": [4], "mixer.D": [4], "mixer.dt_bias": [4], "mixer.in_proj.weight": [128, 32],
                    "mixer.conv1d.weight": [64, 1, 4], "mixer.bcdt_proj.weight": [80, 64],
                    "mixer.dt_proj.weight": [4, 64], "mixer.out_proj.weight": [32, 64], "mixer.dt_norm_weight": [64],
                    "mixer.B_norm_weight": [8], "mixer.C_norm_weight": [8]} if i == 0 else
                   {"mixer.qkv_proj.weight": [128, 32], "mixer.o_proj.weight": [32, 64],
                    "mixer.q_weight": [4, 16], "mixer.k_weight": [2, 16]})}.items()}, {}, tokenizer="plamo"),
    "plamo3": written(
        "Plamo3ForCausalLM", {"head_dim": 8, "window_size": 8, "sliding_window_pattern": 8, "rope_scaling_factor": 4,
                              "initial_context_length": 32},
        {"model.embed_tokens.weight": [N_VOCAB, 32], "model.norm.weight": [32]},
        {f"model.layers.layers.{{}}.{name}.weight": shape for name, shape in {
            **{f"{norm}_norm": [32] for norm in ("pre_mixer", "post_mixer", "pre_mlp", "post_mlp")},
            "mlp.gate_up_proj": [96, 32], "mlp.down_proj": [32, 48], "mixer.qkv_proj": [64, 32],
            "mixer.o_proj": [32, 32], "mixer.q_norm": [8], "mixer.k_norm": [8]}.items()}, tokenizer="plamo"),
    "hunyuan_vl": written(
        "HunYuanVLForConditionalGeneration", {"head_dim": 8, "rope_scaling": {
            "type": "xdrope", "alpha": 1000.0, "factor": 1.0, "xdrope_section": [1, 1, 1, 1]}},
        OUTSIDE | {"vit.patch_embed.weight": [8]}, renamed(LLAMA | QK_NORMS, q_norm="query_layernorm",
        k_norm="key_layernorm")),
    **QUANTIZED,
    # Last, since the package gguf forgets other architectures' names after it.
    "arctic": written("ArcticForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}, OUTSIDE,
                      NORMS | ATTENTION | mixtral("w1", "w2", "w3", n_ff=48) | {
        f"{LAYER}block_sparse_moe.gate.weight": [4, 32], f"{LAYER}residual_layernorm.weight": [32],
        f"{LAYER}residual_mlp.w1.weight": [32, 32], f"{LAYER}residual_mlp.w2.weight": [32, 32],
        f"{LAYER}residual_mlp.w3.weight": [32, 32]}, tokenizer="spm"),
}  # fmt: skip
