"""Cases that transformers does not know, or saves otherwise than these models' own files: the newer families'."""

from conversion_cases import COMMON
from conversions_written import (
    ABSENT,
    ATTENTION,
    KDA,
    LAYER,
    LLAMA,
    MOE,
    N_VOCAB,
    NORMS,
    OUTSIDE,
    QK_NORMS,
    QWEN3_TEXT,
    ROUTED,
    SHARED,
    gated,
    mixtral,
    renamed,
    without,
    written,
)

LATENT = {
    f"{LAYER}self_attn.q_a_proj.weight": [12, 32], f"{LAYER}self_attn.q_a_layernorm.weight": [12],
    f"{LAYER}self_attn.q_b_proj.weight": [64, 12], f"{LAYER}self_attn.kv_a_proj_with_mqa.weight": [24, 32],
    f"{LAYER}self_attn.kv_a_layernorm.weight": [16], f"{LAYER}self_attn.kv_b_proj.weight": [64, 16],
    f"{LAYER}self_attn.o_proj.weight": [32, 32],
}  # fmt: skip
SIZES = {"kv_lora_rank": 16, "q_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
         "num_key_value_heads": 4}  # fmt: skip
INDEXER = {
    f"{LAYER}self_attn.indexer.wq_b.weight": [32, 12], f"{LAYER}self_attn.indexer.wk.weight": [16, 32],
    f"{LAYER}self_attn.indexer.k_norm.weight": [16], f"{LAYER}self_attn.indexer.k_norm.bias": [16],
    f"{LAYER}self_attn.indexer.weights_proj.weight": [2, 32],
}  # fmt: skip
INDEX = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 64}
BIAS = {f"{LAYER}mlp.gate.e_score_correction_bias": [4]}
SCALED = {"routed_scaling_factor": 2.5, "scoring_func": "sigmoid"}
GATE = {f"{LAYER}self_attn.g_proj.weight": [4, 32]}
LING_LATENT = renamed(LATENT, o_proj="dense", self_attn="attention") | {f"{LAYER}attention.g_proj.weight": [4, 32]}
LING_EXPERTS = without(ROUTED, "self_attn") | SHARED | {f"{LAYER}mlp.gate.expert_bias": [4]}
MIMO_WINDOW = {  # keys and values of a layer with a window
    f"{LAYER}self_attn.k_proj.weight": [16, 32], f"{LAYER}self_attn.v_proj.weight": [8, 32],
    f"{LAYER}self_attn.attention_sink_bias": [4],
}  # fmt: skip
MIMO_QUERY = {f"{LAYER}self_attn.q_proj.weight": [64, 32], f"{LAYER}self_attn.o_proj.weight": [32, 32]}
NUMBERED = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts": ABSENT, "num_shared_experts": ABSENT}


def in_layer(shapes: dict[str, list[int]], layer: int) -> dict[str, list[int]]:
    """Return the shapes of one layer alone, with its experts."""
    experts = {name: shape for name, shape in shapes.items() if name.count("{}") > 1}
    found = {name.replace("{}", str(layer)): shape for name, shape in shapes.items() if name not in experts}
    return found | {name.format(layer, i): shape for name, shape in experts.items() for i in range(4)}


def widened(shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    """With rows of 256 numbers, which all types of blocks fit, but those of matrices that make a layer's width."""
    sizes = {16: 128, 32: 256, 48: 320}
    return {name: [sizes.get(n, n) for n in shape] for name, shape in shapes.items()}


MORE = {
    **{f"llama-{type}": written("LlamaForCausalLM", {"hidden_size": 256, "intermediate_size": 320}, widened(OUTSIDE),
                                widened(LLAMA), tokenizer="spm", options=("--outtype", type))
       for type in ("q8_0", "tq1_0", "tq2_0")},
    "xverse": written("XverseForCausalLM", {}, OUTSIDE, LLAMA, tokenizer="spm"),
    "rugpt3xl": written(
        "RuGPT3XLForCausalLM", {"rope_theta": ABSENT, "rms_norm_eps": ABSENT, "layer_norm_eps": 1e-5,
                              "num_key_value_heads": 4, "intermediate_size": 128}, {
            "model.embed_tokens.weight": [N_VOCAB, 32], "model.embed_positions.weight": [128, 32],
            "model.norm.weight": [32], "model.norm.bias": [32]},
        {f"{LAYER}{name}.{side}": shape if side == "weight" else shape[:1] for name, shape in {
            "input_layernorm": [32], "post_attention_layernorm": [32], "mlp.up_proj": [128, 32],
            "mlp.down_proj": [32, 128], **{f"self_attn.{part}_proj": [32, 32] for part in "qkvo"}}.items()
         for side in ("weight", "bias")}),
    "bailingmoe3": written(
        "BailingMoeV3ForCausalLM", MOE | SIZES | SCALED | {
            "head_dim": 8, "no_kda_lora": True, "kda_safe_gate": True, "kda_lower_bound": -5.0, "layer_group_size": 2,
            "gated_attention_proj_granularity_type": "head_wise", "short_conv_kernel_size": 4,
            "moe_shared_expert_intermediate_size": 24, "expert_swiglu_limit_list": [None, 7.0],
            "num_nextn_predict_layers": 1},
        renamed(OUTSIDE, embed_tokens="word_embeddings") | {f"model.layers.2.{name}.weight": shape for name, shape in {
            "eh_proj": [32, 64], "enorm": [32], "hnorm": [32], "final_layernorm": [32]}.items()}
        | in_layer(renamed(without(KDA, "g_a_proj", "g_b_proj", "f_a_proj", "f_b_proj"), self_attn="attention") | {
            f"{LAYER}attention.g_proj.weight": [32, 32], f"{LAYER}attention.f_proj.weight": [32, 32]}, 0)
        | in_layer(LING_LATENT, 1) | in_layer(LING_LATENT | LING_EXPERTS, 2), LING_EXPERTS),
    "maple": written(
        "MapleForCausalLM", MOE | {
            "head_dim": 8, "num_shared_experts": 0, "hidden_act": "silu", "nope_on_global_attention": True,
            "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "scoring_func": "sigmoid"},
        OUTSIDE, ROUTED | QK_NORMS),
    "minimax-01": written(
        "MiniMaxText01ForCausalLM", {
            "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "rotary_dim": 4,
            **{f"layernorm_{kind}_{part}": value for kind in ("full_attention", "linear_attention", "mlp")
               for part, value in (("alpha", 3.5), ("beta", 1.0))}},
        OUTSIDE, {
            f"{LAYER}self_attn.qkv_proj.weight": [96, 32], f"{LAYER}self_attn.out_proj.weight": [32, 32],
            f"{LAYER}self_attn.output_gate.weight": [32, 32], f"{LAYER}self_attn.norm.weight": [32]} | NORMS |
        mixtral("w1", "w2", "w3", n_ff=48) | {f"{LAYER}block_sparse_moe.gate.weight": [4, 32]}),
    "minimax-m3": written(
        "MiniMaxM3SparseForCausalLM", MOE | SCALED | NUMBERED | {
            "num_local_experts": 4, "head_dim": 8, "rotary_dim": 4, "intermediate_size": 24,
            "dense_intermediate_size": 48,
            "moe_layer_freq": [1, 1], "sparse_attention_config": {
                "sparse_num_index_heads": 2, "sparse_index_dim": 16, "sparse_topk_blocks": 4, "sparse_block_size": 4,
                "sparse_local_block": 1}},
        renamed(OUTSIDE, **{"model.": "language_model.model.", "lm_head": "language_model.lm_head"}),
        renamed(NORMS | ATTENTION | QK_NORMS | mixtral("w1", "w2", "w3") | gated(24, "block_sparse_moe.shared_experts.")
                | {f"{LAYER}block_sparse_moe.gate.weight": [4, 32],
                   f"{LAYER}block_sparse_moe.e_score_correction_bias": [4],
                   f"{LAYER}self_attn.index_q_proj.weight": [32, 32], f"{LAYER}self_attn.index_k_proj.weight": [16, 32],
                   f"{LAYER}self_attn.index_q_norm.weight": [16], f"{LAYER}self_attn.index_k_norm.weight": [16]},
                **{"model.": "language_model.model."})),
    "mimo2": written(
        "MiMoV2FlashForCausalLM", MOE | SCALED | NUMBERED | {
            "head_dim": 16, "v_head_dim": 8, "swa_head_dim": 16, "swa_v_head_dim": 8, "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 1, "hybrid_layer_pattern": [0, 1], "sliding_window": 8, "topk_method":
            "noaux_tc", "partial_rotary_factor": 0.5, "layernorm_epsilon": 1e-5, "attention_value_scale": 0.7,
            "swa_rope_theta": 500.0},
        OUTSIDE | {name.format(i).replace("model.", "model.mtp."): shape for i in range(3) for name, shape in (
            gated() | MIMO_QUERY | MIMO_WINDOW | {f"{LAYER}{name}.weight": shape for name, shape in {
                "eh_proj": [32, 64], "enorm": [32], "hnorm": [32], "input_layernorm": [32], "final_layernorm": [32],
                "pre_mlp_layernorm": [32]}.items()}).items()}
        | in_layer({f"{LAYER}self_attn.k_proj.weight": [32, 32], f"{LAYER}self_attn.v_proj.weight": [16, 32]}, 0)
        | in_layer(MIMO_WINDOW, 1), without(ROUTED, "self_attn") | BIAS | MIMO_QUERY),
    "kimi-k3": written(
        "KimiK3ForConditionalGeneration", {"text_config": SIZES | {
            "linear_attn_config": {"full_attn_layers": [2], "short_conv_kernel_size": 4, "head_dim": 8,
                                   "gate_lower_bound": -5.0},
            "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 24, "num_shared_experts": 1,
            "first_k_dense_replace": 0, "routed_scaling_factor": 2.5, "moe_router_activation_func": "sigmoid",
            "moe_renormalize": True, "mla_use_nope": True, "hidden_act": "situ", "activation_situ_beta": 1.5,
            "activation_situ_linear_beta": 7.0, "attn_res_block_size": 4, "routed_expert_hidden_size": 16}},
        renamed(OUTSIDE, **{"model.": "language_model.model.", "lm_head": "language_model.lm_head"}) | {
            "language_model.model.output_attn_res_norm.weight": [32],
            "language_model.model.output_attn_res_proj.weight": [1, 32]}
        | renamed(in_layer(without(KDA, "g_a_proj", "g_b_proj", "f_b_proj") | {
            f"{LAYER}self_attn.g_proj.weight": [32, 32], f"{LAYER}self_attn.f_b_proj.weight": [32, 8],
            f"{LAYER}self_attn.A_log": [4]}, 0)
            | in_layer(LATENT | {f"{LAYER}self_attn.g_proj.weight": [32, 32]}, 1),
            **{"model.": "language_model.model."}),
        renamed(NORMS | gated(24, "block_sparse_moe.shared_experts.") | {
            **{f"{LAYER}block_sparse_moe.experts.{{}}.w{i}.weight": shape for i, shape in (
                (1, [24, 16]), (2, [16, 24]), (3, [24, 16]))},
            f"{LAYER}block_sparse_moe.gate.weight": [4, 32], f"{LAYER}block_sparse_moe.gate.e_score_correction_bias":
            [4], f"{LAYER}block_sparse_moe.routed_expert_down_proj.weight": [16, 32],
            f"{LAYER}block_sparse_moe.routed_expert_up_proj.weight": [32, 16],
            f"{LAYER}block_sparse_moe.routed_expert_norm.weight": [16],
            **{f"{LAYER}{part}_res_{kind}.weight": [32] if kind == "norm" else [1, 32]
               for part in ("self_attention", "mlp") for kind in ("norm", "proj")}},
            **{"model.": "language_model.model."})),
    "hy_v4": written(
        "HYV4ForCausalLM", MOE | SIZES | NUMBERED | INDEX | {
            "routed_scaling_factor": 2.5, "hc_mult": 4, "hc_eps": 1e-6, "hc_magnitude": 2.0, "swiglu_limit": 7.0,
            "indexer_types": ["full", "shared"], "n_group": 1, "topk_group": 1, "mlp_layer_types": ["sparse"] * 2,
            "first_k_dense_replace": 0},
        OUTSIDE | {"model.hc_head.hc_head_fn": [4, 128], "model.hc_head.hc_head_base": [4],
                   "model.hc_head.hc_head_scale": [1]} | in_layer(INDEXER, 0),
        NORMS | LATENT | without(ROUTED, "self_attn", "experts") | BIAS | {
            f"{LAYER}self_attn.linear_gate.weight": [32, 32], f"{LAYER}self_attn.learnable_sink_param": [4],
            f"{LAYER}mlp.experts.gate_up_proj": [4, 48, 32], f"{LAYER}mlp.experts.down_proj": [4, 32, 24],
            f"{LAYER}mlp.shared_experts.gate_proj.weight": [24, 32],
            f"{LAYER}mlp.shared_experts.up_proj.weight": [24, 32],
            f"{LAYER}mlp.shared_experts.down_proj.weight": [32, 24],
            **{f"{LAYER}hc_{part}_layer.hc_pre.hc_{kind}": shape for part in ("attn", "mlp")
               for kind, shape in (("fn", [8, 128]), ("base", [8]), ("scale", [2]))}}),
    "dots3note": written(
        "Dots3NoteForCausalLM", MOE | SIZES | SCALED | NUMBERED | INDEX | {
            "layer_types": ["full_attention", "sliding_attention"], "sliding_window_size": 8,
            "swa_num_attention_heads": 2, "swa_kv_lora_rank": 8, "swa_q_lora_rank": 12, "swa_qk_nope_head_dim": 16,
            "swa_qk_rope_head_dim": 8, "swa_v_head_dim": 16, "swa_head_dim": 24, "swa_rope_theta": 500.0,
            "apply_mla_qkv_lora_rescale": True, "topk_method": "noaux_tc"},
        OUTSIDE | in_layer(INDEXER | LATENT | GATE, 0) | in_layer(LATENT | {
            f"{LAYER}self_attn.q_b_proj.weight": [48, 12], f"{LAYER}self_attn.kv_a_proj_with_mqa.weight": [16, 32],
            f"{LAYER}self_attn.kv_a_layernorm.weight": [8], f"{LAYER}self_attn.kv_b_proj.weight": [64, 8],
            f"{LAYER}self_attn.g_proj.weight": [2, 32]}, 1) | {
            "model.mtp.embed_tokens.weight": [N_VOCAB, 32], "model.layers.2.enorm.weight": [32]},
        without(ROUTED, "self_attn") | SHARED | BIAS | {f"{LAYER}self_attn.k_rope_only_layernorm.weight": [8]},
        tokenizer="dots"),
    "glm5-next": written(
        "Glm5NextForConditionalGeneration", {"text_config": COMMON | MOE | SIZES | SCALED | {
            name: value for name, value in (NUMBERED | INDEX).items() if value != ABSENT} | {
            "rms_norm_eps": 1e-5, "layer_types": ["linear_attention", "full_attention"], "qk_rope_head_dim": 0,
            "mla_use_nope": True,
            "linear_attn_config": {"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4,
                                   "gate_lower_bound": -5.0},
            "index_kpool": 4, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "swiglu_limit": 7.0}},
        renamed(OUTSIDE, **{"model.": "model.language_model."}) | renamed(
            in_layer(KDA, 0) | in_layer(LATENT | INDEXER | {
                f"{LAYER}self_attn.kv_a_proj_with_mqa.weight": [16, 32], f"{LAYER}self_attn.q_b_proj.weight": [32, 12],
                f"{LAYER}self_attn.indexer.index_kpool_compress_ape": [4, 16],
                f"{LAYER}self_attn.indexer.index_kpool_compress_gate": [16, 32]}, 1),
            **{"model.": "model.language_model."}),
        renamed(NORMS | without(ROUTED, "self_attn") | SHARED | BIAS | {
            f"{LAYER}hc_{part}_{kind}": shape for part in ("attn", "ffn")
            for kind, shape in (("fn", [24, 128]), ("base", [24]), ("scale", [3]))},
            **{"model.": "model.language_model."}), tokenizer="glm"),
    "graniteswitch": written(
        "GraniteSwitchForCausalLM", {
            "num_hidden_layers": 3, "num_adapters": 2, "max_lora_rank": 4, "adapter_token_ids": [5, 6],
            "adapter_substitute_token_ids": [7, 8], "control_token_gain": 12.0, "shared_intermediate_size": 48,
            "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 4.0,
            "attention_multiplier": 0.25, "num_experts_per_tok": 2},
        without(OUTSIDE, "lm_head"),
        NORMS | {f"{LAYER}{name}": shape for name, shape in {
            "self_attn.qkv_proj.base_layer.weight": [64, 32], "self_attn.o_proj.base_layer.weight": [32, 32],
            "shared_mlp.input_linear.base_layer.weight": [96, 32],
            "shared_mlp.output_linear.base_layer.weight": [32, 48],
            **{f"self_attn.qkv_proj.lora_A_slices.{i}": [2, 1, 4, 32] for i in range(3)},
            **{f"self_attn.qkv_proj.lora_B_slices.{i}": [2, 1, n, 4] for i, n in enumerate((32, 16, 16))},
            **{f"shared_mlp.input_linear.lora_A_slices.{i}": [2, 1, 4, 32] for i in range(2)},
            **{f"shared_mlp.input_linear.lora_B_slices.{i}": [2, 1, 48, 4] for i in range(2)},
            "self_attn.o_proj.lora_A": [2, 1, 4, 32], "self_attn.o_proj.lora_B": [2, 1, 32, 4],
            "shared_mlp.output_linear.lora_A": [2, 1, 4, 48], "shared_mlp.output_linear.lora_B": [2, 1, 32, 4],
        }.items()}),
    "nemotron-puzzle": written(
        "NemotronHPuzzleForCausalLM", {
            "block_configs": [{"block_type": "mamba"}, {"block_type": "moe", "moe_intermediate_size": 24,
                              "num_experts_per_tok": 2}, {"block_type": "attention"}],
            "head_dim": 8, "n_groups": 2, "conv_kernel": 4, "ssm_state_size": 16, "mamba_num_heads": 8,
            "mamba_head_dim": 8, "num_heads": 8, "expand": 2, "n_routed_experts": 4, "n_shared_experts": 1,
            "moe_shared_expert_intermediate_size": 24, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
            "n_group": 1, "topk_group": 1, "moe_latent_size": 16, "intermediate_size": None,
            "layer_norm_epsilon": 1e-5},
        {"backbone.embeddings.weight": [N_VOCAB, 32], "backbone.norm_f.weight": [32], "lm_head.weight": [N_VOCAB, 32],
         **{f"backbone.layers.{i}.norm.weight": [32] for i in range(3)},
         **{f"backbone.layers.0.mixer.{name}": shape for name, shape in {
             "A_log": [8], "D": [8], "dt_bias": [8], "conv1d.weight": [128, 1, 4], "conv1d.bias": [128],
             "in_proj.weight": [200, 32], "norm.weight": [64], "out_proj.weight": [32, 64]}.items()},
         **{f"backbone.layers.1.mixer.{name}": shape for name, shape in {
             "gate.weight": [4, 32], "gate.e_score_correction_bias": [4],
             **{f"experts.{i}.up_proj.weight": [24, 16] for i in range(4)},
             **{f"experts.{i}.down_proj.weight": [16, 24] for i in range(4)},
             "fc1_latent_proj.weight": [16, 32], "fc2_latent_proj.weight": [32, 16],
             "shared_experts.up_proj.weight": [24, 32], "shared_experts.down_proj.weight": [32, 24]}.items()},
         **{f"backbone.layers.2.mixer.{part}_proj.weight": [16 if part in "kv" else 32, 32] for part in "qkvo"}}, {}),
    "cogvlm": written("CogVLMForCausalLM", {"num_key_value_heads": 4}, OUTSIDE | {
        "model.vision.patch_embedding.cls_embedding": [1, 8]},
                      without(LLAMA, "self_attn", "mlp") | {
        f"{LAYER}self_attn.language_expert_query_key_value.weight": [96, 32],
        f"{LAYER}self_attn.language_expert_dense.weight": [32, 32],
        f"{LAYER}self_attn.vision_expert_query_key_value.weight": [96, 32],
        f"{LAYER}self_attn.vision_expert_dense.weight": [32, 32],
        **{f"{LAYER}mlp.{kind}_mlp.{part}_proj.weight": [32, 48] if part == "down" else [48, 32]
           for kind in ("language", "vision") for part in ("gate", "up", "down")}}, tokenizer="spm"),
    "sarashina2": written(
        "Sarashina2VisionForCausalLM", {"text_config": COMMON | {"rms_norm_eps": 1e-5, "rope_theta": 10000.0}},
        renamed(OUTSIDE, **{"model.": "llm.model.", "lm_head": "llm.lm_head"}) | {
            "norm.weight": [32], "visual.blocks.0.attn.proj.weight": [8, 8]},
        renamed(LLAMA, **{"model.": "llm.model."}), tokenizer="spm"),
    "deepseek2-ocr": written(
        "DeepseekOCRForCausalLM", MOE | NUMBERED | {"num_key_value_heads": 4, "language_config": {
            "architectures": ["DeepseekOCRForCausalLM"]}, "v_head_dim": 8, "qk_rope_head_dim": 0},
        OUTSIDE | {"model.sam_model.neck.0.weight": [8, 8]},
        without(ROUTED, "k_proj", "v_proj") | SHARED | {
            f"{LAYER}self_attn.{part}_proj.weight": [32, 32] for part in "kv"}),
    "deepseek-ocr2": written(
        "DeepseekOCR2ForCausalLM", MOE | NUMBERED | {
            "num_key_value_heads": 4, "norm_topk_prob": False,
            "language_config": {
                "architectures": ["DeepseekV2ForCausalLM"], "use_mla": False, "kv_lora_rank": None,
                "topk_method": "greedy"},
            "v_head_dim": 0, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0},
        OUTSIDE | {"model.sam_model.neck.0.weight": [8, 8], "model.qwen2_model.query_768.weight": [8, 8]},
        without(ROUTED, "k_proj", "v_proj") | SHARED | {
            f"{LAYER}self_attn.{part}_proj.weight": [32, 32] for part in "kv"}),
    "lfm2-bidirectional": written(
        "Lfm2BidirectionalModel", {
            "layer_types": ["conv", "full_attention"], "conv_L_cache": 3, "norm_eps": 1e-5, "rms_norm_eps": ABSENT,
            "block_auto_adjust_ff_dim": False, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 16},
        {"embed_tokens.weight": [N_VOCAB, 32], "embedding_norm.weight": [32]} | in_layer({
            "layers.{}.conv.conv.weight": [32, 1, 3], "layers.{}.conv.in_proj.weight": [96, 32],
            "layers.{}.conv.out_proj.weight": [32, 32]}, 0) | in_layer({
            **{f"layers.{{}}.self_attn.{part}.weight": shape for part, shape in (
                ("q_proj", [32, 32]), ("k_proj", [16, 32]), ("v_proj", [16, 32]), ("out_proj", [32, 32]),
                ("q_layernorm", [8]), ("k_layernorm", [8]))}}, 1),
        {f"layers.{{}}.{name}.weight": shape for name, shape in (
            ("operator_norm", [32]), ("ffn_norm", [32]), ("feed_forward.w1", [48, 32]), ("feed_forward.w3", [48, 32]),
            ("feed_forward.w2", [32, 48]))}),
    "qwen3asr": written(
        "Qwen3ASRForConditionalGeneration", {"thinker_config": {"text_config": COMMON | QWEN3_TEXT}},
        renamed(OUTSIDE, **{"model.": "thinker.model.", "lm_head": "thinker.lm_head"}) | {
            "thinker.audio_tower.proj1.weight": [8, 8]},
        renamed(LLAMA | QK_NORMS, **{"model.": "thinker.model."})),
    "qwen3omni": written(
        "Qwen3OmniMoeForConditionalGeneration", {"thinker_config": {"text_config": COMMON | QWEN3_TEXT | {
            "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
            "vision_config": {"deepstack_visual_indexes": [1]}}},
        renamed(OUTSIDE, **{"model.": "thinker.model.", "lm_head": "thinker.lm_head"}),
        renamed(ROUTED | QK_NORMS, **{"model.": "thinker.model."})),
    "minicpmv4_6": written(
        "MiniCPMV4_6ForConditionalGeneration", {"text_config": COMMON | QWEN3_TEXT | {
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
            "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "layer_types": ["full_attention"] * 2,
            "full_attention_interval": 1, "mtp_num_hidden_layers": 1}},
        renamed(OUTSIDE, **{"model.": "model.language_model."}) | {"model.merger.norm.weight": [8]},
        renamed(LLAMA | QK_NORMS | {f"{LAYER}self_attn.q_proj.weight": [64, 32]},
                **{"model.": "model.language_model."}), options=("--no-nextn",)),
    "deci": written(
        "DeciLMForCausalLM", {"num_key_value_heads": None, "block_configs": [
            {"attention": {"n_heads_in_group": 2, "replace_with_linear": False}, "ffn": {"ffn_mult": 0.5}},
            {"attention": {"n_heads_in_group": None, "replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}}],
            "vocab_size": 128256},  # by which the converter knows BPE
        {"model.embed_tokens.weight": [128256, 32], "model.norm.weight": [32]} | in_layer(ATTENTION, 0)
        | in_layer({f"{LAYER}self_attn.linear_attn.weight": [32, 32]}, 1),
        NORMS | gated(256)),
}  # fmt: skip
