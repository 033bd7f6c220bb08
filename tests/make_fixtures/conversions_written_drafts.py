"""Cases that transformers does not know: what drafts for other models, what makes sounds, DeepSeek V4 as released."""

from conversion_cases import COMMON
from conversions_written import (
    ATTENTION,
    LAYER,
    LLAMA,
    N_VOCAB,
    NORMS,
    OUTSIDE,
    QK_NORMS,
    Written,
    gated,
    renamed,
    without,
    written,
)
from conversions_written_more import MORE

EAGLE3 = {
    "fc.weight": [32, 96], "norm.weight": [32], "lm_head.weight": [40, 32], "d2t": [40], "t2d": [N_VOCAB],
    **{f"midlayer.{name}.weight": shape for name, shape in {
        "hidden_norm": [32], "input_layernorm": [32], "post_attention_layernorm": [32], "self_attn.q_proj": [32, 64],
        "self_attn.k_proj": [16, 64], "self_attn.v_proj": [16, 64], "self_attn.o_proj": [32, 32],
        "mlp.gate_proj": [48, 32], "mlp.up_proj": [48, 32], "mlp.down_proj": [32, 48]}.items()},
}  # fmt: skip
D2T = {"d2t": ("I64", [3 * i for i in range(40)]), "t2d": ("I64", [0] * N_VOCAB)}
DFLASH = {"fc.weight": [32, 64], "hidden_norm.weight": [32], "norm.weight": [32]}
DFLASH_LAYER = renamed(NORMS | ATTENTION | QK_NORMS | gated(), **{"model.": ""})
MARKOV = {
    "markov_head.markov_w1.weight": [N_VOCAB, 8], "markov_head.markov_w2.weight": [N_VOCAB, 8],
    "confidence_head.proj.weight": [1, 40], "confidence_head.proj.bias": [1],
}  # fmt: skip
GEMMA4 = {"global_head_dim": 16, "num_global_key_value_heads": 1, "layer_types": ["full_attention"] * 2,
          "attention_k_eq_v": True, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
          "mask_token_id": 5, "target_layer_ids": [0, 1]}  # fmt: skip

DEEPSEEK4 = {
    "attn_norm.weight": [64], "ffn_norm.weight": [64], "attn.attn_sink": [4], "attn.wq_a.weight": [32, 64],
    "attn.q_norm.weight": [32], "attn.wq_b.weight": [128, 32], "attn.wkv.weight": [32, 64],
    "attn.kv_norm.weight": [32], "attn.wo_a.weight": [32, 64], "attn.wo_b.weight": [64, 32],
    **{f"hc_{block}_{part}": shape for block in ("attn", "ffn")
       for part, shape in (("fn", [24, 256]), ("base", [24]), ("scale", [3]))},
    "ffn.gate.weight": [4, 64], "ffn.gate.bias": [4],
    **{f"ffn.shared_experts.{w}.weight": shape for w, shape in (("w1", [32, 64]), ("w2", [64, 32]), ("w3", [32, 64]))},
    **{f"ffn.experts.{i}.{w}.{part}": shape for i in range(4) for w, part, shape in (
        ("w1", "weight", [32, 32]), ("w1", "scale", [32, 2]), ("w2", "weight", [64, 16]), ("w2", "scale", [64, 1]),
        ("w3", "weight", [32, 32]), ("w3", "scale", [32, 2]))},
}  # fmt: skip
FP8 = ("attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_b", "ffn.shared_experts.w1", "ffn.shared_experts.w2",
       "ffn.shared_experts.w3")  # fmt: skip
SCALES = {f"{name}.scale": [1, 1] for name in FP8}
POOLED = {
    "attn.compressor.ape": [4, 64], "attn.compressor.wkv.weight": [64, 64], "attn.compressor.wgate.weight": [64, 64],
    "attn.compressor.norm.weight": [32], "attn.indexer.wq_b.weight": [32, 32], "attn.indexer.wq_b.scale": [1, 1],
    "attn.indexer.weights_proj.weight": [2, 64], "attn.indexer.compressor.ape": [4, 32],
    "attn.indexer.compressor.wkv.weight": [32, 64], "attn.indexer.compressor.wgate.weight": [32, 64],
    "attn.indexer.compressor.norm.weight": [16],
}  # fmt: skip
HC_HEAD = {"hc_head_fn": [4, 256], "hc_head_base": [4], "hc_head_scale": [1]}
DEEPSEEK4_TYPES = {
    "tid2eid": ("I64", [i % 4 for i in range(2 * N_VOCAB)]),
    **{f".{w}.scale": ("F8_E8M0", None) for w in ("w1", "w2", "w3")}, ".scale": ("F8_E8M0", None),
    **{f".experts.{i}.{w}.weight": ("I8", None) for i in range(4) for w in ("w1", "w2", "w3")},
    **{f"{name}.weight": ("F8_E4M3", None) for name in (*FP8, "attn.indexer.wq_b")},
    **dict.fromkeys(("_fn", "_base", "_scale", "attn_sink", "ape", "gate.bias"), ("F32", None)),
}  # fmt: skip
DEEPSEEK4_CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": N_VOCAB,
    "hidden_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_lora_rank": 16,
    "o_groups": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0, "compress_rope_theta": 160000.0, "compress_ratios": [0, 4], "num_hash_layers": 1,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64, "beta_fast": 32,
                     "beta_slow": 1},
    "sliding_window": 16, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]},
}  # fmt: skip


def deepseek4() -> Written:
    """A layer that chooses experts by tokens, one with pools, and one that drafts, which is left out."""
    first = DEEPSEEK4 | SCALES | {"ffn.gate.tid2eid": [N_VOCAB, 2]}
    shapes = {"embed.weight": [N_VOCAB, 64], "norm.weight": [64], "head.weight": [N_VOCAB, 64], **HC_HEAD}
    shapes |= {f"layers.0.{name}": shape for name, shape in first.items()}
    shapes |= {f"layers.1.{name}": shape for name, shape in (DEEPSEEK4 | SCALES | POOLED).items()}
    shapes |= {"mtp.0.enorm.weight": [64]}
    return Written(DEEPSEEK4_CONFIG, shapes, types=DEEPSEEK4_TYPES)


def dspark4() -> Written:
    config = {**DEEPSEEK4_CONFIG, "architectures": ["DeepseekV4DSparkModel"], "dspark_block_size": 8,
              "dspark_target_layer_ids": [0, 1], "dspark_noise_token_id": 7}  # fmt: skip
    shapes = {f"mtp.{i}.{name}": shape for i in range(2) for name, shape in (DEEPSEEK4 | SCALES).items()}
    shapes |= {"mtp.0.main_proj.weight": [64, 128], "mtp.0.main_norm.weight": [64], "mtp.1.norm.weight": [64],
               **{f"mtp.1.{name}": shape for name, shape in HC_HEAD.items()},
               "mtp.1.markov_head.markov_w1.weight": [N_VOCAB, 8], "mtp.1.markov_head.markov_w2.weight": [N_VOCAB, 8],
               "mtp.1.confidence_head.proj.weight": [1, 72], "mtp.1.ffn.gate.bias_vl": [4]}  # fmt: skip
    return Written(config, shapes, types=DEEPSEEK4_TYPES, target="deepseek4")


DRAFTS = {
    "deepseek4": deepseek4(),
    "dspark-deepseek4": dspark4(),
    "eagle3": written("LlamaForCausalLMEagle3", {"num_hidden_layers": 1, "draft_vocab_size": 40}, EAGLE3, {}, types=D2T,
                      target="llama-bpe"),
    "eagle3-llama": written(
        "LlamaForCausalLM", {"num_hidden_layers": 1, "draft_vocab_size": 40, "norm_before_fc": True,
                             "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "target_hidden_size": 64},
        EAGLE3 | {"fc.weight": [32, 192], "input_norm.weight": [192], "embed_tokens.weight": [N_VOCAB, 32]}, {},
        types=D2T, target="llama-bpe"),
    "eagle3-speculators": Written(
        {"architectures": ["Eagle3Speculator"], "draft_vocab_size": 40, "norm_before_residual": True,
         "transformer_layer_config": {"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "head_dim": 8, **COMMON,
                                      "num_hidden_layers": 1}},
        {name.replace("midlayer", "layers.0"): shape for name, shape in EAGLE3.items()}, types=D2T, target="llama-bpe"),
    "dflash": written(
        "DFlashDraftModel", {"head_dim": 8, "block_size": 8, "dflash_config": {
            "mask_token_id": 5, "target_layer_ids": [0, 1], "causal": False}}, DFLASH, DFLASH_LAYER, target="qwen3"),
    "dflash-windows": written(
        "DFlashDraftModel", {
            "head_dim": 8, "rope_is_neox_style": False, "is_causal": True, "has_embed_tokens": False,
            "use_sliding_window": True, "sliding_window": 16, "partial_rotary_factor": 0.5,
            "layer_types": ["sliding_attention", "full_attention"], "dflash_config": {
                "mask_token_id": 5, "target_layer_ids": [0, 1], "attention_value_scale": 0.5, "output_multiplier": 0.25,
                "final_logit_softcapping": 30.0, "input_embedding_scale": 2.0}},
        DFLASH | {"embed_tokens.weight": [N_VOCAB, 32]}, DFLASH_LAYER | {"layers.{}.self_attn.sinks": [4]},
        target="qwen35"),
    "dflash2": written(
        "DFlash2DraftModel", {"head_dim": 8, "dflash_config": {
            "mask_token_id": 5, "target_layer_ids": [0, 1], "block_size": 8, "use_swa": True, "swa_window_size": 16,
            "conv_kernel_size": 3, "conv_group_size": 8, "selector_rank": 4, "selector_top_k": 2}},
        DFLASH | {"candidate_selector.predecessor_codebook": [N_VOCAB, 4],
                  "candidate_selector.successor_codebook": [N_VOCAB, 4],
                  "candidate_selector.hidden_projection.weight": [4, 32]},
        DFLASH_LAYER | {f"layers.{{}}.{block}_conv.{name}": shape for block in ("attention", "mlp") for name, shape in (
            ("base_kernel", [2, 3, 32]), ("kernel_projection.weight", [24, 32]))}, target="qwen3"),
    "dspark": written(
        "Qwen3DSparkModel", {"head_dim": 8, "target_layer_ids": [0, 1], "mask_token_id": 5, "block_size": 8},
        DFLASH | MARKOV | {"lm_head.weight": [N_VOCAB, 32]}, DFLASH_LAYER, target="qwen3"),
    "dspark-speculators": Written(
        {"architectures": ["DSparkSpeculator"], "draft_vocab_size": 40, "aux_hidden_state_layer_ids": [1, 2],
         "mask_token_id": 5, "block_size": 8, "transformer_layer_config": {
             "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "head_dim": 8, **COMMON}},
        DFLASH | MARKOV | {"markov_head.markov_w2.weight": [40, 8], "lm_head.weight": [40, 32], "d2t": [40],
                           "t2d": [N_VOCAB]} | {
            name.format(i): shape for i in range(2) for name, shape in DFLASH_LAYER.items()},
        types=D2T, target="qwen3"),
    "dspark-gemma4": written(
        "Gemma4DSparkModel", GEMMA4, DFLASH | {
            "embed_tokens.weight": [N_VOCAB, 32], "markov_head.markov_w1.weight": [N_VOCAB, 8],
            "markov_head.markov_w2.weight": [N_VOCAB, 8], "confidence_proj.weight": [1, 40]},
        {f"layers.{{}}.{name}": shape for name, shape in {
            **{f"{norm}_layernorm.weight": [32] for norm in (
                "input", "post_attention", "pre_feedforward", "post_feedforward")},
            "self_attn.q_proj.weight": [64, 32], "self_attn.k_proj.weight": [16, 32],
            "self_attn.o_proj.weight": [32, 64], "self_attn.q_norm.weight": [16], "self_attn.k_norm.weight": [16],
            "layer_scalar": [1], "mlp.gate_proj.weight": [48, 32], "mlp.up_proj.weight": [48, 32],
            "mlp.down_proj.weight": [32, 48]}.items()}, target="gemma4"),
}  # fmt: skip

TALKER = {
    "head_dim": 8, "text_vocab_size": N_VOCAB, "text_hidden_size": 24, "vocab_size": 3072, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": {"mrope_section": [2, 1, 1], "rope_type": "default"},
    "codec_bos_id": 2149, "codec_eos_token_id": 2150, "codec_language_id": {"chinese": 2055, "english": 2050},
}  # fmt: skip
SOUND = {
    "qwen3tts": Written(
        {"architectures": ["Qwen3TTSForConditionalGeneration"], "talker_config": {**COMMON, **TALKER}},
        {f"talker.{name}": shape for name, shape in {
            "model.text_embedding.weight": [N_VOCAB, 24], "model.codec_embedding.weight": [3072, 32],
            "text_projection.linear_fc1.weight": [24, 24], "text_projection.linear_fc1.bias": [24],
            "text_projection.linear_fc2.weight": [32, 24], "text_projection.linear_fc2.bias": [32],
            "model.norm.weight": [32], "codec_head.weight": [3072, 32],
            "code_predictor.model.norm.weight": [32],
            **{name.format(i): shape for i in range(2) for name, shape in (LLAMA | QK_NORMS).items()}}.items()}
        | {"speaker_encoder.fc.weight": [8, 8]}),
    "pockettts": Written({}, {
        "flow_lm.bos_emb": [8], "flow_lm.bos_before_voice": [1, 1, 128], "flow_lm.input_linear.weight": [128, 8],
        "flow_lm.conditioner.embed.weight": [N_VOCAB, 128], "flow_lm.out_norm.weight": [128],
        "flow_lm.out_norm.bias": [128], "flow_lm.out_eos.weight": [1, 128],
        "mimi.encoder_transformer.transformer.layers.0.norm1.weight": [64],
        "mimi.encoder_transformer.transformer.layers.0.linear1.weight": [64, 64],
        **{f"flow_lm.transformer.layers.{i}.{name}": shape for i in range(2) for name, shape in {
            "norm1.weight": [128], "norm1.bias": [128], "norm2.weight": [128], "norm2.bias": [128],
            "self_attn.in_proj.weight": [384, 128], "self_attn.out_proj.weight": [128, 128],
            "linear1.weight": [192, 128], "linear2.weight": [128, 192]}.items()}}, tokenizer="pocket"),
    "wavtokenizer": Written(
        {"architectures": ["WavTokenizerDec"], "vocab_size": 40, "n_embd_features": 24, "n_ff": 96, "hidden_size": 20,
         "max_position_embeddings": 128, "num_hidden_layers": 6, "num_attention_heads": 1, "layer_norm_epsilon": 1e-6,
         "group_norm_epsilon": 1e-6, "group_norm_groups": 8, "posnet": {"n_embd": 64, "n_layer": 6},
         "convnext": {"n_embd": 64, "n_layer": 2}},
        {"tok_embeddings.weight": [40, 24], "backbone.embed.weight": [64, 24, 7], "backbone.embed.bias": [64, 1],
         "backbone.norm.weight": [64], "backbone.norm.bias": [64], "backbone.final_layer_norm.weight": [64],
         "backbone.final_layer_norm.bias": [64], "head.out.weight": [20, 64], "head.out.bias": [20],
         "feature_extractor.encodec.quantizer.vq.layers.0._codebook.cluster_size": [8]}
        | {f"backbone.posnet.{i}.{name}": shape for i in (0, 1, 3, 4) for name, shape in {
            "norm1.weight": [64, 1], "norm1.bias": [64, 1], "norm2.weight": [64, 1], "norm2.bias": [64, 1],
            "conv1.weight": [64, 64, 3], "conv1.bias": [64, 1], "conv2.weight": [64, 64, 3],
            "conv2.bias": [64, 1]}.items()}
        | {f"backbone.posnet.{i}.norm.{side}": [64, 1] for i in (2, 5) for side in ("weight", "bias")}
        | {f"backbone.posnet.2.{name}.{side}": [64, 64, 1] if side == "weight" else [64, 1]
           for name in ("q", "k", "v", "proj_out") for side in ("weight", "bias")}
        | {f"backbone.convnext.{i}.{name}": shape for i in range(2) for name, shape in {
            "dwconv.weight": [64, 1, 7], "dwconv.bias": [64, 1], "norm.weight": [64], "norm.bias": [64],
            "pwconv1.weight": [96, 64], "pwconv1.bias": [96], "pwconv2.weight": [64, 96], "pwconv2.bias": [64],
            "gamma.weight": [64]}.items()}, types={"cluster_size": ("F32", None)}),
}  # fmt: skip

QRWKV = {
    **{f"self_attn.time_maa_{part}": [1, 1, 32] for part in "xrwkvg"}, "self_attn.time_maa_w1": [32, 40],
    "self_attn.time_maa_w2": [5, 8, 32], "self_attn.time_decay": [1, 1, 32], "self_attn.time_decay_w1": [32, 8],
    "self_attn.time_decay_w2": [8, 32], "self_attn.gate.weight": [32, 32],
    **{f"self_attn.{part}_proj.weight": [n, 32] for part, n in (("q", 32), ("k", 16), ("v", 16), ("o", 32))},
    **{f"self_attn.{part}_proj.bias": [n] for part, n in (("q", 32), ("k", 16), ("v", 16))},
}  # fmt: skip
ARWKV_RANKS = 64, 64, 32, 128  # the published models', which no configuration says
ARWKV = {
    **{f"self_attn.time_mixer.x_{part}": [1, 1, 32] for part in "rwkvag"},
    **{f"self_attn.time_mixer.{part}0": [1, 1, 32] for part in "wav"},
    **{f"self_attn.time_mixer.{part}1": [32, rank] for part, rank in zip("wavg", ARWKV_RANKS, strict=True)},
    **{f"self_attn.time_mixer.{part}2": [rank, 32] for part, rank in zip("wavg", ARWKV_RANKS, strict=True)},
    "self_attn.time_mixer.k_k": [1, 1, 32], "self_attn.time_mixer.k_a": [1, 1, 32],
    "self_attn.time_mixer.r_k": [4, 8],
    **{f"self_attn.time_mixer.{part}.weight": [32, 32] for part in ("receptance", "key", "value", "output")},
}  # fmt: skip
ASSISTANT = {
    f"{LAYER}layer_scalar": [1], **{f"{LAYER}{norm}_layernorm.weight": [32] for norm in (
        "input", "post_attention", "pre_feedforward", "post_feedforward")},
    **gated(),
}  # fmt: skip
FURTHER = {
    "rwkv6qwen2": written(
        "RWKV6Qwen2ForCausalLM", {"lora_rank_tokenshift": 8, "lora_rank_decay": 8}, OUTSIDE,
        NORMS | gated() | {f"{LAYER}{name}": shape for name, shape in QRWKV.items()}),
    "arwkv7": written(
        "RwkvHybridForCausalLM", {"head_size": 8, "wkv_has_gate": True, "wkv_version": 7}, OUTSIDE,
        NORMS | gated() | {f"{LAYER}{name}": shape for name, shape in ARWKV.items()}),
    "gemma4-assistant": Written(
        {"architectures": ["Gemma4AssistantForCausalLM"], "backbone_hidden_size": 64, "text_config": {
            **COMMON, "head_dim": 16, "global_head_dim": 32, "num_global_key_value_heads": 1, "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"], "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 2, "rms_norm_eps": 1e-6,
            "moe_intermediate_size": None, "use_double_wide_mlp": False,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}},
        without(OUTSIDE, "lm_head") | {
            "pre_projection.weight": [32, 128], "post_projection.weight": [64, 32],
            "masked_embedding.centroids.weight": [8, 32],
            **{name.format(i): shape for i in range(2) for name, shape in ASSISTANT.items()},
            **{f"model.layers.{i}.self_attn.{name}.weight": shape for i, dim in ((0, 16), (1, 32)) for name, shape in (
                ("q_proj", [4 * dim, 32]), ("o_proj", [32, 4 * dim]), ("q_norm", [dim]))}}, tokenizer="gemma4"),
    "bailingmoe3-vl": (ling := MORE["bailingmoe3"])._replace(
        config={**ling.config, "architectures": ["BailingMoeV3VLForConditionalGeneration"],
                "mrope_section": [2, 1, 1]},
        shapes={"linear_proj.0.weight": [8, 8], "vision.patch_embed.proj.weight": [8, 8], **ling.shapes}),
    "lfm2-dense": (lfm2 := MORE["lfm2-bidirectional"])._replace(
        config={**lfm2.config, "architectures": ["Lfm2Model"]},
        modules={"1_Dense/model.safetensors": {"linear.weight": [16, 32]}}),
}  # fmt: skip
