"""Cases of tests/fixtures/conversions: small configurations of every family."""

from typing import Any, NamedTuple

from checkpoints import N_TOKENS

COMMON = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": N_TOKENS + 4, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
HEADS = {"head_dim": 16}
WINDOW = {"sliding_window": 8}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 500000.0,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
GPT = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 128, "n_ctx": 128, "vocab_size": N_TOKENS + 4}
LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "head_dim": 8,
    "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "num_key_value_heads": 4, "routed_scaling_factor": 1.5,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
MAMBA2 = {
    "num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2, "expand": 2, "chunk_size": 8, "conv_kernel": 4,
}  # fmt: skip
SIGMOID = {"scoring_func": "sigmoid"}  # which the models' own config.json have
NO_DRAFTS = ("--no-nextn",)
INDEXER = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 64}


WHOLE = {"num_key_value_heads": 4}
T5 = {
    "d_model": 32, "d_ff": 48, "d_kv": 8, "num_heads": 4, "num_layers": 2, "vocab_size": N_TOKENS + 4,
    "decoder_start_token_id": 0,
}  # fmt: skip


class Case(NamedTuple):
    """A model class of transformers', and what its configuration has."""

    model: str
    own: dict[str, Any]
    """Beside ``common``."""
    tokenizer: str = "bpe"
    common: dict[str, Any] = COMMON
    written: dict[str, Any] = {}
    """What ``config.json`` has otherwise, such as the name that checkpoints have."""
    tokens: bool = True
    """Whether the model gives logits after tokens."""
    options: tuple[str, ...] = ()
    """Of llama.cpp's converter."""
    target: str = ""
    """Of a draft: the case of the model that it drafts for."""


CASES = {
    "llama": Case("LlamaForCausalLM", {}, "spm"),
    "llama-bpe": Case("LlamaForCausalLM", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-bias": Case("LlamaForCausalLM", {"attention_bias": True, "rope_parameters": YARN}),
    "mistral": Case("MistralForCausalLM", {"sliding_window": None, **HEADS}, "spm"),
    "mixtral": Case("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}, "spm"),
    "smollm3": Case("SmolLM3ForCausalLM", {}),
    "granite": Case("GraniteForCausalLM", {"attention_multiplier": 0.1, "embedding_multiplier": 2.0,
                                           "residual_multiplier": 0.3, "logits_scaling": 4.0}),
    "granitemoe": Case("GraniteMoeForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                                 "attention_multiplier": 0.1}),
    "qwen2": Case("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen2moe": Case("Qwen2MoeForCausalLM", {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 20}),
    "qwen3": Case("Qwen3ForCausalLM", HEADS),
    "qwen3moe": Case("Qwen3MoeForCausalLM", {**EXPERTS, **HEADS, "num_experts": 4, "norm_topk_prob": True}),
    "gemma": Case("GemmaForCausalLM", HEADS, "spm"),
    "gemma2": Case("Gemma2ForCausalLM", {**HEADS, **WINDOW, "query_pre_attn_scalar": 16}, "spm"),
    "gemma3": Case("Gemma3ForCausalLM", {**HEADS, **WINDOW, "query_pre_attn_scalar": 16}, "spm"),
    "phi2": Case("PhiForCausalLM", {"num_key_value_heads": 4, "intermediate_size": 128}),
    "phi3": Case("Phi3ForCausalLM", {"original_max_position_embeddings": 128}, "spm"),
    "command-r": Case("CohereForCausalLM", {}),
    "exaone4": Case("Exaone4ForCausalLM", {**HEADS, "sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "olmo": Case("OlmoForCausalLM", {}),
    "olmo2": Case("Olmo2ForCausalLM", {}),
    "olmoe": Case("OlmoeForCausalLM", {"num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2}),
    "stablelm": Case("StableLmForCausalLM", {"use_qkv_bias": True}),
    "starcoder2": Case("Starcoder2ForCausalLM", {}),
    "gpt2": Case("GPT2LMHeadModel", GPT, common={}),
    "gptneox": Case("GPTNeoXForCausalLM", {"rotary_pct": 0.25, "intermediate_size": 128}),
    "falcon": Case("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False,
                                         "bias": False}),
    "deepseek2": Case("DeepseekV2ForCausalLM", {**EXPERTS, **LATENT}),
    "gpt-oss": Case("GptOssForCausalLM", {**HEADS, **WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mamba": Case("MambaForCausalLM", {"state_size": 8, "intermediate_size": 64}),
    # --- Llama's kin
    "llama4": Case("Llama4ForCausalLM", {**HEADS, "intermediate_size_mlp": 40, "num_local_experts": 4,
                                         "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}),
    "arcee": Case("ArceeForCausalLM", {"head_dim": 8}),
    "apertus": Case("ApertusForCausalLM", {}),
    "afmoe": Case("AfmoeForCausalLM", {**EXPERTS, **WINDOW, **HEADS, "num_experts": 4, "num_dense_layers": 1,
                                       "num_shared_experts": 1, "layer_types": ["sliding_attention"] * 2,
                                       "mup_enabled": True}, written={"route_norm": True}),
    "mistral3": Case("Ministral3ForCausalLM", {**HEADS, "rope_parameters": YARN | {
        "llama_4_scaling_beta": 0.1, "mscale_all_dim": 1.0, "mscale": 1.0, "beta_fast": 32.0, "beta_slow": 1.0}}),
    "seed_oss": Case("SeedOssForCausalLM", HEADS),
    "jais2": Case("Jais2ForCausalLM", {"num_key_value_heads": 4, "head_dim": 8}),
    "minicpm3": Case("MiniCPM3ForCausalLM", {"kv_lora_rank": 16, "q_lora_rank": 12, "qk_rope_head_dim": 8,
                                             "qk_nope_head_dim": 16, "v_head_dim": 8, "num_key_value_heads": 4}, "spm"),
    # --- with experts
    "phimoe": Case("PhimoeForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2, "lm_head_bias": True,
                                         "attention_bias": True, "original_max_position_embeddings": 128}, "spm",
                   written={"architectures": ["PhiMoEForCausalLM"]}, tokens=False),  # transformers routes otherwise
    "dots1": Case("Dots1ForCausalLM", {**EXPERTS, **HEADS, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
                                       "topk_group": 1, "first_k_dense_replace": 1, "layer_types": None,
                                       "routed_scaling_factor": 1.5, "sliding_window": None}, written=SIGMOID),
    "dbrx": Case("DbrxForCausalLM", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128,
                                     "vocab_size": N_TOKENS + 4,
                                     "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
                                     "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2,
                                                    "hidden_size": 32}}, common={}),
    "glm4moe": Case("Glm4MoeForCausalLM", {**EXPERTS, **HEADS, "n_routed_experts": 4, "n_shared_experts": 1,
                                           "first_k_dense_replace": 1, "use_qk_norm": True}, "glm"),
    "solar-open": Case("SolarOpenForCausalLM", {**EXPERTS, **HEADS, "n_routed_experts": 4, "n_shared_experts": 1},
                       "glm"),
    "glm4moelite": Case("Glm4MoeLiteForCausalLM", {**EXPERTS, **LATENT, "mlp_layer_types": None}, "glm",
                        written=SIGMOID),
    "glm-dsa": Case("GlmMoeDsaForCausalLM", {**EXPERTS, **LATENT, **INDEXER, "mlp_layer_types": None}, "glm",
                    written=SIGMOID),
    "deepseek3": Case("DeepseekV3ForCausalLM", {**EXPERTS, **LATENT, "norm_topk_prob": True, "rope_parameters": YARN | {
        "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}}, written=SIGMOID),
    "deepseek32": Case("DeepseekV32ForCausalLM", {**EXPERTS, **LATENT, **INDEXER}, "glm", written=SIGMOID),
    "minimax-m2": Case("MiniMaxM2ForCausalLM", {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2,
                                                "rotary_dim": 8}, written=SIGMOID),
    "ernie4_5-moe": Case("Ernie4_5_MoeForCausalLM", {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24,
                                                     "moe_num_shared_experts": 1, "moe_layer_start_index": 1,
                                                     "moe_layer_end_index": 1, "moe_layer_interval": 1,
                                                     "use_bias": False}, "spm"),
    "hunyuan-moe": Case("HunYuanMoEV1ForCausalLM", {"num_experts": 4, "moe_topk": [2, 2], "head_dim": 8},
                        written={"moe_intermediate_size": [48, 48], "num_shared_expert": [1, 1]}),
    "hy_v3": Case("HYV3ForCausalLM", {**EXPERTS, **HEADS, "num_experts": 4, "num_shared_experts": 1,
                                      "first_k_dense_replace": 1}),
    "exaone-moe": Case("ExaoneMoeForCausalLM", {**EXPERTS, **HEADS, **WINDOW, "num_experts": 4, "num_shared_experts": 1,
                                                "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                                                "layer_types": LAYERS["layer_types"]}, written=SIGMOID),
    "cohere2moe": Case("Cohere2MoeForCausalLM", {**WINDOW, **HEADS, "num_experts": 4, "num_experts_per_tok": 2,
                                                 "layer_types": LAYERS["layer_types"]}),
    "mellum": Case("MellumForCausalLM", {**EXPERTS, **HEADS, **WINDOW, **LAYERS, "num_experts": 4, "rope_parameters": {
        kind: {"rope_type": "default", "rope_theta": 500000.0} for kind in LAYERS["layer_types"]}}),
    "laguna": Case("LagunaForCausalLM", {
        **EXPERTS, **HEADS, **WINDOW, "num_experts": 4, "layer_types": LAYERS["layer_types"][::-1],
        "shared_expert_intermediate_size": 24,
        "moe_routed_scaling_factor": 1.5, "mlp_layer_types": ["dense", "sparse"],
        "num_attention_heads_per_layer": [4, 2]}),
    # --- others with attention alone
    "glm4": Case("Glm4ForCausalLM", HEADS, "glm"),
    "chatglm": Case("GlmForCausalLM", {"head_dim": 8}, "glm"),
    "ernie4_5": Case("Ernie4_5ForCausalLM", HEADS, "spm"),
    "hunyuan-dense": Case("HunYuanDenseV1ForCausalLM", HEADS),
    "cohere2": Case("Cohere2ForCausalLM", WINDOW, written={"rotary_pct": 1.0}),
    "olmo3": Case("Olmo3ForCausalLM", WINDOW),
    "nemotron": Case("NemotronForCausalLM", {"head_dim": 8}, "spm"),
    "bloom": Case("BloomForCausalLM", {"hidden_size": 32, "n_head": 4, "n_layer": 2, "vocab_size": N_TOKENS + 4},
                  common={}),
    "mpt": Case("MptForCausalLM", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128,
                                   "vocab_size": N_TOKENS + 4}, common={},
                written={"architectures": ["MPTForCausalLM"]}),
    "starcoder": Case("GPTBigCodeForCausalLM", GPT, common={}),
    "gemma3n": Case("Gemma3nForCausalLM", {
        **HEADS, **WINDOW, "num_hidden_layers": 4, "layer_types": [*LAYERS["layer_types"]] * 2,
        "vocab_size_per_layer_input": N_TOKENS + 4, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0], "laurel_rank": 4, "intermediate_size": [48] * 4}, "spm",
        tokens=False),  # GGUF's runtime has the layers of the published sizes alone
    "gemma4": Case("Gemma4ForCausalLM", {
        **HEADS, **WINDOW, **LAYERS, "global_head_dim": 32, "num_global_key_value_heads": 1,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": N_TOKENS + 4, "num_kv_shared_layers": 0},
        "gemma4"),
    "hrm_text": Case("HrmTextForCausalLM", {"head_dim": 8, "num_key_value_heads": 4, "H_cycles": 2, "L_cycles": 1,
                                            "prefix_lm": False}),
    "muse-glimmer": Case("MuseGlimmerForConditionalGeneration", {
        "text_config": COMMON | HEADS | WINDOW | {"num_hidden_layers": 4},
        "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                          "pos_emb_height": 2, "pos_emb_width": 2},
        "out_hidden_size": 64, "projector_hidden_size": 16}, common={}),
    "muse-glimmer-assistant": Case("MuseGlimmerAssistantModel", {
        **HEADS, **WINDOW, **LAYERS, "block_size": 4, "mask_token_id": 5, "target_layer_ids": [0, 2]},
        tokens=False, target="muse-glimmer"),
    "deepseek4-transformers": Case("DeepseekV4ForCausalLM", {
        "hidden_size": 64, "moe_intermediate_size": 32, "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 32,
        "o_lora_rank": 16, "o_groups": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "sliding_window": 16, "index_n_heads": 16, "index_head_dim": 16, "index_topk": 3, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "compressed_sparse_attention"],
        "mlp_layer_types": ["moe"] * 3, "partial_rotary_factor": 0.5}),
    # --- with a state
    "mamba2": Case("Mamba2ForCausalLM", {**MAMBA2, "intermediate_size": 64, "vocab_size": N_TOKENS + 12}),
    "falcon-mamba": Case("FalconMambaForCausalLM", {"state_size": 8, "intermediate_size": 64}),
    "falcon-h1": Case("FalconH1ForCausalLM", {
        "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 16,
        "mamba_chunk_size": 8, "head_dim": 8, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.75,
        "ssm_multipliers": [0.5, 0.75, 1.25, 1.5, 0.875], "mlp_multipliers": [0.75, 0.5], "key_multiplier": 0.5,
        "lm_head_multiplier": 0.25, "embedding_multiplier": 2.0, "attention_out_multiplier": 0.75}),
    "granitehybrid": Case("GraniteMoeHybridForCausalLM", {
        "layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1,
        "mamba_d_state": 16, "mamba_chunk_size": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 24, "position_embedding_type": None},
        written={"layer_types": ["mamba", "attention"]}),
    "bamba": Case("BambaForCausalLM", {
        "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 16,
        "mamba_chunk_size": 8, "attn_rotary_emb": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}),
    "jamba": Case("JambaForCausalLM", {
        "num_experts": 4, "num_experts_per_tok": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
        "attn_layer_offset": 1, "attn_layer_period": 2, "mamba_d_state": 8, "mamba_expand": 2, "mamba_dt_rank": 4,
        "use_mamba_kernels": False}, "spm"),
    "nemotron_h": Case("NemotronHForCausalLM", {
        "num_hidden_layers": 3, "layers_block_type": ["mamba", "attention", "moe"], **HEADS,
        "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "chunk_size": 8,
        **EXPERTS, "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 20, "n_shared_experts": 1,
        "n_group": 1, "topk_group": 1}),
    "lfm2": Case("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3,
                                     "block_auto_adjust_ff_dim": False}),
    "lfm2moe": Case("Lfm2MoeForCausalLM", {**EXPERTS, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3,
                                           "num_experts": 4, "num_dense_layers": 1}),
    "qwen3next": Case("Qwen3NextForCausalLM", {**EXPERTS, **HEADS, **LINEAR, "num_experts": 4,
                                               "shared_expert_intermediate_size": 20}, options=NO_DRAFTS),
    "qwen35": Case("Qwen3_5ForCausalLM", {**HEADS, **LINEAR}, options=NO_DRAFTS),
    "qwen4exp": Case("Qwen4ExpForCausalLM", {
        **EXPERTS, **HEADS, **LINEAR, "num_experts": 4, "shared_expert_intermediate_size": 20, "hc_lowrank": 12,
        "ple_layer_ids": [1], "ngram_vocab_size_base": 50, "heads_per_ngram": 2, "split_ngram_parts": 2,
        "make_ngram_vocab_size_divisible_by": 32, "indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 16,
        "indexer_budget": 8, "indexer_compress_ratio": 4, "output_gate_type": "sigmoid", "eos_token_id": 38,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
        written={"layer_types": ["linear_attention", "full_attention"]}),
    "qwen35moe": Case("Qwen3_5MoeForCausalLM", {**EXPERTS, **HEADS, **LINEAR, "num_experts": 4,
                                                "shared_expert_intermediate_size": 20}, options=NO_DRAFTS),
    # --- encoders
    "bert": Case("BertModel", WHOLE, "wordpiece", tokens=False),
    "bert-labels": Case("BertForSequenceClassification", {**WHOLE, "id2label": {0: "no", 1: "yes", 2: "perhaps"}},
                        "wordpiece", tokens=False),
    "distilbert": Case("DistilBertModel", {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4,
                                           "vocab_size": N_TOKENS + 4}, "wordpiece", {}, tokens=False),
    "roberta": Case("RobertaModel", WHOLE, tokens=False),
    "xlm-roberta": Case("XLMRobertaModel", {**WHOLE, "pad_token_id": 1}, "xlmr", tokens=False),
    "modern-bert": Case("ModernBertModel", {**WHOLE, "sep_token_id": 2, "cls_token_id": 1}, tokens=False,
                        written={"layer_norm_eps": 1e-5}),
    "eurobert": Case("EuroBertModel", {"classifier_pooling": "mean", "mask_token_id": 3}, tokens=False),
    "gemma-embedding": Case("Gemma3TextModel", {**HEADS, **WINDOW, "query_pre_attn_scalar": 16}, "spm", tokens=False),
    "t5": Case("T5ForConditionalGeneration", T5, "unigram", {}, tokens=False),
    "t5encoder": Case("T5EncoderModel", T5, "unigram", {}, tokens=False),
    # --- families that llama.cpp does not know
    "ministral": Case("MinistralForCausalLM", {**HEADS, **WINDOW, **LAYERS}),
    "cwm": Case("CwmForCausalLM", {**HEADS, **WINDOW, **LAYERS, "rope_parameters": LLAMA3}),
    "helium": Case("HeliumForCausalLM", {"head_dim": 8}),
    "nanochat": Case("NanoChatForCausalLM", {"head_dim": 8, "final_logit_softcapping": 2.0}),
    "hyperclovax": Case("HyperCLOVAXForCausalLM", {"attention_multiplier": 0.3, "embedding_multiplier": 2.0,
                                                   "residual_multiplier": 0.3, "logits_scaling": 0.25}),
    "gptj": Case("GPTJForCausalLM", {**GPT, "rotary_dim": 4}, common={}),
    "codegen": Case("CodeGenForCausalLM", {**GPT, "rotary_dim": 4}, common={}),
    "gpt-neo": Case("GPTNeoForCausalLM", {"hidden_size": 32, "num_heads": 4, "num_layers": 2, "window_size": 8,
                                          "attention_types": [[["global", "local"], 1]], "vocab_size": N_TOKENS + 4,
                                          "max_position_embeddings": 128}, common={}),
    "opt": Case("OPTForCausalLM", {**WHOLE, "ffn_dim": 48}),
    "opt-350m": Case("OPTForCausalLM", {**WHOLE, "ffn_dim": 48, "word_embed_proj_dim": 16,
                                        "do_layer_norm_before": False}),
    "biogpt": Case("BioGptForCausalLM", WHOLE),
    "xglm": Case("XGLMForCausalLM", {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4,
                                     "vocab_size": N_TOKENS + 4, "max_position_embeddings": 128}, "spm", common={}),
    "persimmon": Case("PersimmonForCausalLM", {**WHOLE, "rope_parameters": {
        "rope_theta": 25000.0, "rope_type": "default", "partial_rotary_factor": 0.5}}, "spm"),
    "vaultgemma": Case("VaultGemmaForCausalLM", {**HEADS, **WINDOW, "query_pre_attn_scalar": 16}, "spm"),
    "flexolmo": Case("FlexOlmoForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2}),
    "kolibri": Case("Kolibri1ForCausalLM", {**EXPERTS, **HEADS, **WINDOW, **LAYERS, "num_experts": 4,
                                            "shared_expert_intermediate_size": 20}),
    "flint": Case("FlintForCausalLM", {**EXPERTS, **HEADS, **WINDOW, "num_experts": 4, "mlp_only_layers": [0],
                                       "shared_expert_intermediate_size": 20, **LAYERS}),
    "axk1": Case("AXK1ForCausalLM", {**EXPERTS, **LATENT, "head_dim": 8, "norm_topk_prob": True}),
    "diffllama": Case("DiffLlamaForCausalLM", {"head_dim": 8}, "spm"),
    "lfm3": Case("Lfm3ForCausalLM", {**HEADS, **WINDOW, "num_hidden_layers": 3, "conv_L_cache": 4, "norm_eps": 1e-5,
                                     "layer_types": ["conv", "sliding_attention", "full_attention"]}),
    "lara-mini": Case("LaraMiniForCausalLM", {**EXPERTS, **HEADS, **WINDOW, **LINEAR, "num_hidden_layers": 3,
                                              "num_experts": 4, "shared_expert_intermediate_size": 20, "layer_types": [
                                                  "linear_attention", "sliding_attention", "full_attention"]}),
    "modern-bert-decoder": Case("ModernBertDecoderForCausalLM", {**WHOLE, "local_attention": 16, "cls_token_id": 1,
                                                                 "sep_token_id": 2, "layer_types": [
                                                                     "full_attention", "sliding_attention"]}),
    "mistral4": Case("Mistral4ForCausalLM", {**EXPERTS, **LATENT, "head_dim": 24, "rope_parameters": {
        **YARN, "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1}}),
    "bailing-hybrid": Case("BailingHybridForCausalLM", {
        **EXPERTS, **LATENT, "num_hidden_layers": 3, "layer_group_size": 3, "num_local_experts": 4,
        "n_routed_experts": None}),
    "olmo-hybrid": Case("OlmoHybridForCausalLM", {
        **LINEAR, "linear_value_head_dim": 16, "linear_num_key_heads": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": None}}),
    "axk2": Case("AXK2ForCausalLM", {**EXPERTS, **LATENT, **INDEXER, "index_n_heads": 16, "index_topk": 8,
                                     "gated_norm_rank": 4, "mlp_layer_types": ["dense", "sparse"]}),
    "apertus15": Case("Apertus1p5TextForCausalLM", {}),
    "cohere-compass": Case("CohereCompassForCausalLM", {**HEADS, **WINDOW, **LAYERS, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": None}}),
    "longcat-flash": Case("LongcatFlashForCausalLM", {
        **LATENT, "num_layers": 2, "ffn_hidden_size": 48, "expert_ffn_hidden_size": 24, "moe_topk": 3,
        "zero_expert_num": 2}, common={**COMMON, "num_hidden_layers": 4}),
    "zaya": Case("ZayaForCausalLM", {**HEADS, **WINDOW, "moe_intermediate_size": 24, "num_experts": 4,
                                     "router_hidden_size": 12, "layer_types": ["hybrid_sliding", "hybrid", "hybrid"],
                                     "num_hidden_layers": 3}),
    "dory": Case("DoryForCausalLM", {
        **HEADS, **WINDOW, "num_hidden_layers": 4, "n_input_layers": 1, "n_output_layers": 1, "n_recurrent_loops": 2,
        "initializer_range": 0.3, "ngpt_alpha_init": 0.5,
        "layer_types": [*LAYERS["layer_types"], *LAYERS["layer_types"][::-1]]}),
    "minimax-m3-transformers": Case("MiniMaxM3VLForCausalLM", {
        **HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 24,
        "dense_intermediate_size": 48, "shared_intermediate_size": 24, "rotary_dim": 8, "index_n_heads": 2,
        "index_head_dim": 16, "index_block_size": 2, "index_topk_blocks": 4, "mlp_layer_types": ["dense", "sparse"],
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    "recurrent-gemma": Case("RecurrentGemmaForCausalLM", {
        "num_hidden_layers": 3, "attention_window_size": 8, "lru_width": 48, "num_key_value_heads": 1}, "spm"),
    "jetmoe": Case("JetMoeForCausalLM", {"kv_channels": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "xlstm": Case("xLSTMForCausalLM", {
        "hidden_size": 128, "num_heads": 4, "num_hidden_layers": 2, "vocab_size": N_TOKENS + 4, "add_out_norm": True,
        "autocast_kernel_dtype": "float32", "mode": "inference"}, common={}),
    "mistral-large4": Case("MistralLarge4ForConditionalGeneration", {
        "text_config": {
            **COMMON, **EXPERTS, **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, **INDEXER,
            "num_hidden_layers": 6, "index_n_heads": 16, "head_dim": 8,
            "index_topk": 16, "n_routed_experts": 6,  # whose choices rounding to bfloat16 does not change
            "no_rope_layers": [1, 1, 0, 1, 0, 1], "kv_source_layers": [0, 0, 2, 0, 2, 5],
            "indexer_types": ["full", "shared", "full", "full", "shared", "full"],
            "rope_parameters": {**YARN, "attention_factor": 1.0}, "final_logit_softcapping": 5.0},
        "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                          "head_dim": 8, "image_size": 32, "patch_size": 8}}, common={}),
}  # fmt: skip
