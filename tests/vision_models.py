"""Configurations of tiny vision models, as transformers has them; see make_fixtures/vision_models.py."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import N_TOKENS, write_checkpoint
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType, GGUFFile
from pumice.model_files.opening import open_model

FIXTURE = Path(__file__).parent / "fixtures" / "vision_models" / "values.npz"
SHAPES = FIXTURE.with_name("cases.json")
SIZE = (90, 50)  # of the picture that rows and logits are of
SIZES = ((20, 11), (201, 130))  # further ones, whose pixels are compared
IMAGE, BREAK = 410, N_TOKENS  # token ids of an image's rows, and of the end of a line of them

TEXT: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
    "num_hidden_layers": 3, "vocab_size": N_TOKENS + 1, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
TOWER: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 3, "patch_size": 8,
}  # fmt: skip
QWEN: dict[str, Any] = {"depth": 4, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2}
GRANITE: dict[str, Any] = {
    **{key: value for key, value in TEXT.items() if key != "head_dim"}, "architectures": ["GraniteForCausalLM"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0,
}  # fmt: skip
TOKENS: dict[str, Any] = {"vision_start_token_id": 413, "vision_end_token_id": 414, "video_token_id": 415}


def _qwen_text(**more: Any) -> dict[str, Any]:
    return TEXT | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **more}}


CASES: dict[str, dict[str, Any]] = {
    "gemma3": {
        "class": "Gemma3ForConditionalGeneration", "config_class": "Gemma3Config", "model_type": "gemma3",
        "config": {
            "text_config": TEXT | {
                "model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 24, "query_pre_attn_scalar": 16,
                "tie_word_embeddings": True,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            },
            "vision_config": TOWER | {"model_type": "siglip_vision_model", "image_size": 64}, "mm_tokens_per_image": 16,
            "image_token_index": IMAGE, "boi_token_index": 413, "eoi_token_index": 414, "tie_word_embeddings": True,
        },
    },
    "qwen2vl": {
        "class": "Qwen2VLForConditionalGeneration", "config_class": "Qwen2VLConfig", "model_type": "qwen2_vl",
        "config": {
            "text_config": _qwen_text(mrope_section=[2, 3, 3]) | {"model_type": "qwen2_vl_text"},
            "vision_config": QWEN | {"model_type": "qwen2_vl", "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2},
            "image_token_id": IMAGE, **TOKENS,
        },
    },
    "qwen25vl": {
        "class": "Qwen2_5_VLForConditionalGeneration", "config_class": "Qwen2_5_VLConfig", "model_type": "qwen2_5_vl",
        "config": {
            "text_config": _qwen_text(mrope_section=[2, 3, 3]) | {"model_type": "qwen2_5_vl_text"},
            "vision_config": QWEN | {
                "model_type": "qwen2_5_vl", "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64,
                "window_size": 32, "fullatt_block_indexes": [1, 3],
            },
            "image_token_id": IMAGE, **TOKENS,
        },
    },
    "exaone45": {
        "class": "Exaone4_5_ForConditionalGeneration", "config_class": "Exaone4_5_Config", "model_type": "exaone4_5",
        "config": {
            "text_config": _qwen_text() | {"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 32},
            "vision_config": QWEN | {
                "model_type": "exaone4_5_vision", "hidden_size": 64, "num_heads": 4, "num_key_value_heads": 2,
                "intermediate_size": 48, "out_hidden_size": 64, "window_size": 32, "fullatt_block_indexes": [1, 3],
            },
            "image_token_id": IMAGE, "video_token_id": 415,
        },
    },
    "qwen3vl": {
        "class": "Qwen3VLForConditionalGeneration", "config_class": "Qwen3VLConfig", "model_type": "qwen3_vl",
        "config": {
            "text_config": _qwen_text(mrope_section=[3, 3, 2], mrope_interleaved=True) | {
                "model_type": "qwen3_vl_text",
            },
            "vision_config": QWEN | {
                "model_type": "qwen3_vl", "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64,
                "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 2],
            },
            "image_token_id": IMAGE, **TOKENS,
        },
    },
    "qwen3vlmoe": {
        "class": "Qwen3VLMoeForConditionalGeneration", "config_class": "Qwen3VLMoeConfig", "model_type": "qwen3_vl_moe",
        "config": {
            "text_config": _qwen_text(mrope_section=[3, 3, 2], mrope_interleaved=True) | {
                "model_type": "qwen3_vl_moe_text", "num_experts": 4, "num_experts_per_tok": 2,
                "moe_intermediate_size": 24, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
            },
            "vision_config": QWEN | {
                "model_type": "qwen3_vl_moe_vision", "depth": 3, "hidden_size": 32, "intermediate_size": 48,
                "out_hidden_size": 64, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1],
            },
            "image_token_id": IMAGE, **TOKENS,
        },
    },
    "qwen35": {
        "class": "Qwen3_5ForConditionalGeneration", "config_class": "Qwen3_5Config", "model_type": "qwen3_5",
        "config": {
            "text_config": _qwen_text(mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5) | {
                "model_type": "qwen3_5_text", "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8,
                "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "layer_types": ["linear_attention", "linear_attention", "full_attention"], "full_attention_interval": 3,
            },
            "vision_config": QWEN | {
                "model_type": "qwen3_5_vision", "depth": 2, "hidden_size": 32, "intermediate_size": 48,
                "out_hidden_size": 64, "num_position_embeddings": 36,
            },
            "image_token_id": IMAGE, **TOKENS,
        },
    },
    "llavanext": {
        "class": "LlavaNextForConditionalGeneration", "theirs": False,  # llama.cpp has a script of its own for it
        "config_class": "LlavaNextConfig", "model_type": "llava_next",
        "config": {
            "text_config": TEXT | {
                "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1,
            },
            "vision_config": TOWER | {"model_type": "clip_vision_model", "image_size": 32, "projection_dim": 32},
            "image_token_index": IMAGE, "image_grid_pinpoints": [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]],
        },
    },
    "granite4vision": {
        "class": "Granite4VisionForConditionalGeneration", "config_class": "Granite4VisionConfig",
        "model_type": "granite4_vision",
        "config": {
            "text_config": GRANITE | {"model_type": "granite4_vision_text", "num_hidden_layers": 6},
            "vision_config": TOWER | {
                "model_type": "siglip_vision_model", "hidden_size": 128, "num_hidden_layers": 6, "image_size": 64,
            },
            "qformer_config": {
                "model_type": "blip_2_qformer", "num_hidden_layers": 1, "intermediate_size": 96,
                "cross_attention_frequency": 1, "use_qformer_text_input": False,
            },
            "image_token_index": IMAGE, "vision_feature_select_strategy": "full", "downsample_rate": "2/4",
            "deepstack_layer_map": [[-2, 2], [-1, 0]], "spatial_vision_layer": -1,
            "spatial_target_layers": [1, 3, 4, 5], "image_grid_pinpoints": [[64, 128], [128, 64], [64, 192]],
        },
    },
    "granitevision": {
        "class": "LlavaNextForConditionalGeneration", "theirs": False,  # llama.cpp has a script of its own for it
        "config_class": "LlavaNextConfig", "model_type": "llava_next",
        "config": {
            "text_config": GRANITE | {
                "model_type": "granite", "num_hidden_layers": 1,
                "logits_scaling": 1.0,  # transformers does not read it here
            },
            "vision_config": TOWER | {"model_type": "siglip_vision_model", "image_size": 32},
            "image_token_index": IMAGE,
            "image_grid_pinpoints": [[32, 64], [64, 32], [32, 96], [96, 32], [64, 64], [32, 160], [160, 32]],
            "vision_feature_layer": [-3, -1], "vision_feature_select_strategy": "full",
        },
    },
    "janus": {
        "class": "JanusForConditionalGeneration", "config_class": "JanusConfig", "model_type": "janus",
        "config": {
            "text_config": TEXT | {"model_type": "llama", "num_hidden_layers": 1},
            "vision_config": {
                **TOWER, "model_type": "janus_vision_model", "image_size": 64, "mlp_ratio": 2, "projection_dim": 64,
                "depth": 2,
            },
            "vq_config": {
                "model_type": "janus_vqgan", "base_channels": 32, "channel_multiplier": [1, 1], "embed_dim": 8,
                "latent_channels": 32, "num_embeddings": 16, "num_patches": 4, "num_res_blocks": 1,
                "projection_dim": 64, "image_token_embed_dim": 64,
            },
            "image_token_id": IMAGE,
        },
    },
    "hunyuanvl": {
        "class": "HunYuanVLForConditionalGeneration", "config_class": "HunYuanVLConfig", "model_type": "hunyuan_vl",
        "config": {
            "text_config": TEXT | {
                "model_type": "hunyuan_vl_text", "num_hidden_layers": 2,
                "rope_parameters": {
                    "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2, 2], "alpha": 1.0,
                },
            },
            "vision_config": TOWER | {
                "model_type": "hunyuan_vl_vision", "max_image_size": 48, "min_image_size": 16, "out_hidden_size": 64,
                "text_hidden_size": 64, "spatial_merge_size": 2,
            },
            "image_token_id": IMAGE,
        },
    },
    "minicpmv46": {
        "class": "MiniCPMV4_6ForConditionalGeneration", "config_class": "MiniCPMV4_6Config",
        "model_type": "minicpmv4_6",
        "config": {
            "text_config": _qwen_text(mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5) | {
                "model_type": "qwen3_5_text", "num_hidden_layers": 1, "linear_key_head_dim": 8,
                "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "layer_types": ["full_attention"],
            },
            "vision_config": TOWER | {"model_type": "minicpmv4_6_vision", "image_size": 80, "insert_layer_id": 1},
            "insert_layer_id": 1, "image_size": 96, "image_token_id": IMAGE,
        },
    },
    "pixtral": {
        "class": "LlavaForConditionalGeneration", "config_class": "LlavaConfig", "model_type": "llava",
        "config": {
            "text_config": TEXT | {"model_type": "mistral"},
            "vision_config": TOWER | {"model_type": "pixtral", "image_size": 64, "head_dim": 16, "hidden_act": "silu"},
            "image_token_index": IMAGE, "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
            "projector_hidden_act": "gelu",
        },
    },
    "mistral3": {
        "class": "Mistral3ForConditionalGeneration", "config_class": "Mistral3Config", "model_type": "mistral3",
        "config": {
            "text_config": TEXT | {"model_type": "mistral", "rms_norm_eps": 1e-5},
            "vision_config": TOWER | {"model_type": "pixtral", "image_size": 64, "head_dim": 16, "hidden_act": "silu"},
            "image_token_index": IMAGE, "spatial_merge_size": 2, "vision_feature_layer": -1,
            "projector_hidden_act": "gelu", "multimodal_projector_bias": False,
        },
    },
    "mistrallarge4": {
        "class": "MistralLarge4ForConditionalGeneration", "config_class": "MistralLarge4Config",
        "model_type": "mistral_large4", "theirs": False,
        "config": {
            "text_config": TEXT | {
                "model_type": "mistral_large4_text", "rms_norm_eps": 1e-5, "head_dim": 8, "num_key_value_heads": 4,
                "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
                "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                "mlp_layer_types": ["dense", "sparse", "sparse"], "routed_scaling_factor": 1.5,
                "index_n_heads": 4, "index_head_dim": 16, "index_topk": 512, "no_rope_layers": [1, 1, 0],
                "kv_source_layers": [0, 0, 2], "indexer_types": ["full", "shared", "full"],
                "rope_parameters": {
                    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
                    "rope_theta": 10000.0, "attention_factor": 1.0,
                },
            },
            "vision_config": TOWER | {"model_type": "pixtral", "image_size": 64, "head_dim": 16, "hidden_act": "silu"},
            "image_token_index": IMAGE, "spatial_merge_size": 2, "vision_feature_layer": -1,
            "projector_hidden_act": "gelu", "multimodal_projector_bias": False,
        },
    },
    "lightonocr": {
        "class": "LightOnOcrForConditionalGeneration", "published": "LightOnOCRForConditionalGeneration",
        "config_class": "LightOnOcrConfig", "model_type": "lighton_ocr",
        "config": {
            "text_config": _qwen_text() | {
                "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 1,
                "rms_norm_eps": 1e-5,
            },
            "vision_config": TOWER | {"model_type": "pixtral", "image_size": 64, "head_dim": 16, "hidden_act": "silu"},
            "image_token_id": IMAGE, "spatial_merge_size": 2,
        },
    },
    "lfm2vl": {
        "class": "Lfm2VlForConditionalGeneration", "theirs": False,  # llama.cpp's converter wants patches of 16 pixels
        "config_class": "Lfm2VlConfig", "model_type": "lfm2_vl",
        "config": {
            "text_config": {key: TEXT[key] for key in TEXT if key not in ("head_dim", "num_hidden_layers")} | {
                "model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "norm_eps": 1e-6, "num_hidden_layers": 3,
                "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "block_ff_dim": 96,
                "block_auto_adjust_ff_dim": False, "tie_word_embeddings": True,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "vision_config": TOWER | {
                "model_type": "siglip2_vision_model", "num_patches": 36, "vision_use_head": False,
            },
            "image_token_id": IMAGE, "downsample_factor": 2, "projector_hidden_size": 48, "tie_word_embeddings": True,
        },
    },
    "internvl": {
        "class": "InternVLForConditionalGeneration",
        "theirs": False,  # llama.cpp's converter knows the class of the authors' own code
        "config_class": "InternVLConfig", "model_type": "internvl",
        "config": {
            "text_config": _qwen_text() | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
            "vision_config": TOWER | {
                "model_type": "internvl_vision", "image_size": [32, 32], "patch_size": [8, 8], "attention_bias": True,
            },
            "image_token_id": IMAGE, "downsample_ratio": 0.5, "projector_hidden_act": "gelu",
        },
    },
    "gemma4": {
        "class": "Gemma4ForConditionalGeneration", "tokenizer": "gemma4", "config_class": "Gemma4Config",
        "model_type": "gemma4",
        "config": {
            "text_config": TEXT | {
                "model_type": "gemma4_text", "num_hidden_layers": 4,
                "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
                "sliding_window": 80, "global_head_dim": 32, "hidden_size_per_layer_input": 8, "vocab_size": 430,
                "vocab_size_per_layer_input": 430, "num_kv_shared_layers": 0, "use_bidirectional_attention": "vision",
                "final_logit_softcapping": 30.0,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                },
                "tie_word_embeddings": True,
            },
            "vision_config": TOWER | {
                "model_type": "gemma4_vision", "patch_size": 4, "head_dim": 16, "num_key_value_heads": 2,
                "position_embedding_size": 256, "use_clipped_linears": True, "standardize": True,
            },
            "audio_config": None, "image_token_id": IMAGE, "boi_token_id": 413, "eoi_token_id": 414,
            "tie_word_embeddings": True,
        },
    },
    "glm4v": {
        "class": "Glm4vForConditionalGeneration", "config_class": "Glm4vConfig", "model_type": "glm4v",
        "config": {
            "text_config": _qwen_text(
                mrope_section=[2, 1, 1], partial_rotary_factor=0.5,
            ) | {"model_type": "glm4v_text"},
            "vision_config": QWEN | {
                "model_type": "glm4v_vision", "depth": 3, "hidden_size": 32, "intermediate_size": 48,
                "out_hidden_size": 64, "image_size": 48,
            },
            "image_token_id": IMAGE, "image_start_token_id": 413, "image_end_token_id": 414,
            "video_start_token_id": 416, "video_end_token_id": 417, "video_token_id": 415,
        },
    },
    "glmocr": {
        "class": "GlmOcrForConditionalGeneration", "config_class": "GlmOcrConfig", "model_type": "glm_ocr",
        "config": {
            "text_config": _qwen_text(mrope_section=[2, 3, 3]) | {"model_type": "glm_ocr_text"},
            "vision_config": QWEN | {
                "model_type": "glm_ocr_vision", "depth": 3, "hidden_size": 32, "intermediate_size": 48,
                "out_hidden_size": 64, "image_size": 48,
            },
            "image_token_id": IMAGE, "image_start_token_id": 413, "image_end_token_id": 414,
            "video_start_token_id": 416, "video_end_token_id": 417, "video_token_id": 415,
        },
    },
    "paddleocr": {
        "class": "PaddleOCRVLForConditionalGeneration", "config_class": "PaddleOCRVLConfig",
        "model_type": "paddleocr_vl",
        "config": {
            "text_config": _qwen_text(mrope_section=[2, 3, 3]) | {"model_type": "paddleocr_vl_text"},
            "vision_config": TOWER | {
                "model_type": "paddleocr_vl_vision", "architectures": ["PaddleOCRVisionModel"], "image_size": 48,
                "spatial_merge_size": 2,
            },
            "image_token_id": IMAGE, **TOKENS,
        },
    },
    "kimik25": {
        "class": "Kimi_K25ForConditionalGeneration", "published": "KimiK25ForConditionalGeneration",
        "config_class": "Kimi_K25Config", "model_type": "kimi_k25",
        "config": {
            "text_config": _qwen_text() | {
                "model_type": "deepseek_v3", "num_hidden_layers": 1, "first_k_dense_replace": 1, "q_lora_rank": 16,
                "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "head_dim": 8,
                "num_key_value_heads": 4,
            },
            "vision_config": {
                **TOWER, "model_type": "kimi_k25_vision", "pos_emb_height": 6, "pos_emb_width": 6, "pos_emb_time": 2,
                "init_pos_emb_height": 6, "init_pos_emb_width": 6, "init_pos_emb_time": 2,
                "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
            },
            "projection_hidden_size": 32, "image_token_id": IMAGE, "video_token_id": 415, "vision_start_token_id": 413,
            "vision_end_token_id": 414, "tie_word_embeddings": False,
        },
    },
    "llama4": {
        "class": "Llama4ForConditionalGeneration", "config_class": "Llama4Config", "model_type": "llama4",
        "config": {
            "text_config": TEXT | {
                "model_type": "llama4_text", "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 1, "intermediate_size_mlp": 96,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "vision_config": TOWER | {
                "model_type": "llama4_vision_model", "image_size": 32, "intermediate_size": 128,
                "vision_output_dim": 48, "projector_input_dim": 48, "projector_output_dim": 48,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "image_token_index": IMAGE, "boi_token_index": 413, "eoi_token_index": 414,
        },
    },
    "museglimmer": {
        "class": "MuseGlimmerForConditionalGeneration", "config_class": "MuseGlimmerConfig",
        "model_type": "muse_glimmer",
        "config": {
            "text_config": TEXT | {
                "model_type": "muse_glimmer_text", "num_hidden_layers": 1, "layer_types": ["full_attention"],
                "sliding_window": 64, "qk_scale_factor": 3.87, "output_multiplier": 0.2, "post_norm_eps": 1e-8,
                "final_logit_softcapping": 20.0, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            },
            "vision_config": TOWER | {
                "model_type": "muse_glimmer_vision", "num_hidden_layers": 5, "pos_emb_height": 3, "pos_emb_width": 3,
                "max_position_embeddings": 9, "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4},
            },
            "image_token_id": IMAGE, "video_token_id": 415, "out_hidden_size": 128, "projector_hidden_size": 40,
        },
    },
    "dots3note": {
        "class": "Dots3NoteForConditionalGeneration", "tokenizer": "dots", "config_class": "Dots3NoteConfig",
        "model_type": "dots3_note_unread",  # so that llama.cpp's converter reads the authors' keys, not transformers'
        "config": {key: value for key, value in TEXT.items() if key not in ("head_dim", "num_key_value_heads")} | {
            "vocab_size": N_TOKENS + 4, "rope_theta": 10000.0, "num_key_value_heads": 4, "head_dim": 16,
            "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 12, "kv_lora_rank": 16,
            "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_head_dim": 24, "swa_qk_nope_head_dim": 16,
            "swa_qk_rope_head_dim": 8, "swa_v_head_dim": 16, "swa_q_lora_rank": 12, "swa_kv_lora_rank": 8,
            "swa_rope_theta": 500.0, "apply_mla_qkv_lora_rescale": True,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window_size": 8,
            "index_n_heads": 2, "index_head_dim": 16, "index_topk": 512, "n_routed_experts": 4, "n_shared_experts": 1,
            "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 24, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc",
            "vision_config": {
                "embed_dim": 32, "hidden_size": 64, "intermediate_size": 48, "moe_intermediate_size": 20,
                "num_hidden_layers": 4, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2,
                "temporal_patch_size": 1, "rms_norm_eps": 1e-5, "use_bias": False, "use_qk_norm": True,
                "adapter_type": "patch_merger", "pre_pixel_shuffle": True, "adapter_in_dim": 32, "adapter_out_dim": 64,
                "adapter_merge_size": 2, "pyramid_num_routed": [-1, 2, 4, 1], "capacity_factor": 2, "router_scale": 1.0,
            },
            "audio_config": {
                "whisper_config": {
                    "d_model": 16, "encoder_attention_heads": 2, "encoder_layers": 3, "encoder_ffn_dim": 24,
                    "num_mel_bins": 16, "activation_function": "swiglu",
                },
                "downsample_hidden_size": 12, "whisper_adapter_in_dim": 16, "whisper_adapter_out_dim": 64,
                "use_conv2d_stem": True, "use_rope": True, "use_rms_norm": True, "use_causal": False, "merge_factor": 1,
                "chunk_seconds": 60,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
            },
            "image_token_id": IMAGE, "audio_token_id": IMAGE + 1, "video_token_id": 415,
        },
    },
    "gemma4unified": {
        "class": "Gemma4UnifiedForConditionalGeneration", "tokenizer": "gemma4",
        "theirs": False,  # llama.cpp's converter wants the audio part, too
        "config_class": "Gemma4UnifiedConfig", "model_type": "gemma4_unified",
        "config": {
            "text_config": TEXT | {
                "model_type": "gemma4_unified_text", "num_hidden_layers": 2,
                "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 80, "vocab_size": 430,
                "global_head_dim": 32, "hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision",
                "final_logit_softcapping": 30.0,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                },
                "tie_word_embeddings": True,
            },
            "vision_config": {
                "model_type": "gemma4_unified_vision", "patch_size": 4, "pooling_kernel_size": 3, "mm_embed_dim": 48,
                "mm_posemb_size": 80, "output_proj_dims": 48,
            },
            "audio_config": None, "image_token_id": IMAGE, "boi_token_id": 413, "eoi_token_id": 414,
            "tie_word_embeddings": True,
        },
    },
}  # fmt: skip

_HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
#: ``preprocessor_config.json`` of each case.
PROCESSORS: dict[str, dict[str, Any]] = {
    "gemma3": {**_HALF, "image_seq_length": 16},
    "qwen2vl": {**_CLIP, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2},
    "qwen25vl": {**_CLIP, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2},
    "exaone45": {**_CLIP, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2},
    "qwen3vl": {**_HALF, "size": {"shortest_edge": 4 * 16**2, "longest_edge": 64 * 16**2}},
    "qwen3vlmoe": {**_HALF, "size": {"shortest_edge": 4 * 16**2, "longest_edge": 64 * 16**2}},
    "qwen35": {**_HALF, "size": {"shortest_edge": 4 * 16**2, "longest_edge": 64 * 16**2}},
    "hunyuanvl": {**_CLIP, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2},
    "minicpmv46": {**_HALF, "scale_resolution": 96}, "llavanext": _CLIP, "granite4vision": _HALF,
    "granitevision": _HALF, "janus": _HALF,
    "lfm2vl": {**_HALF, "min_image_tokens": 4, "max_image_tokens": 16, "tile_size": 64, "max_tiles": 4},
    "pixtral": _CLIP, "mistral3": _CLIP, "mistrallarge4": _CLIP,
    "lightonocr": _CLIP, "internvl": {**_CLIP, "min_patches": 1, "max_patches": 6},
    "gemma4": {"image_mean": [0.0] * 3, "image_std": [1.0] * 3, "max_soft_tokens": 70},
    "gemma4unified": {"image_mean": [0.0] * 3, "image_std": [1.0] * 3, "max_soft_tokens": 70},
    "glm4v": {**_CLIP, "size": {"shortest_edge": 8 * 16**2, "longest_edge": 128 * 16**2}},
    "glmocr": {**_CLIP, "size": {"shortest_edge": 8 * 16**2, "longest_edge": 128 * 16**2}},
    "paddleocr": {**_CLIP, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2},
    "kimik25": {**_HALF, "in_patch_limit": 64}, "llama4": {**_HALF, "max_patches": 4},
    "museglimmer": {**_HALF, "max_image_tokens": 24},
    "dots3note": {"vision_config": {**_CLIP, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2}},
}  # fmt: skip
#: ``video_preprocessor_config.json`` of cases that have one.
VIDEO_PROCESSORS: dict[str, dict[str, Any]] = {
    "qwen2vl": {"size": {"shortest_edge": 4 * 16**2, "longest_edge": 12 * 16**2}},
    "qwen25vl": {"size": {"shortest_edge": 4 * 16**2, "longest_edge": 12 * 16**2}},
    "qwen3vl": {"size": {"shortest_edge": 4 * 16**2, "longest_edge": 48 * 16**2}},
    "glm4v": {"size": {"shortest_edge": 8 * 16**2, "longest_edge": 64 * 16**2}},
}


def config_of(kind: str) -> dict[str, Any]:
    """Return a case's ``config.json``."""
    case = CASES[kind]
    return {"architectures": [case.get("published", case["class"])], "model_type": case["model_type"], **case["config"]}


def write_folder(folder: Path, kind: str, shapes: Mapping[str, Sequence[int]]) -> Path:
    """Write a case's checkpoint, with preprocessing and the token that ends a line of an image."""
    tokenizer_kind = CASES[kind].get("tokenizer", "bpe")
    write_checkpoint(folder, config_of(kind), shapes, tokenizer_kind)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[kind]))
    if kind in VIDEO_PROCESSORS:
        (folder / "video_preprocessor_config.json").write_text(json.dumps(VIDEO_PROCESSORS[kind]))
    if tokenizer_kind != "bpe":
        return folder
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": BREAK, "content": "[IMG_BREAK]"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def converted(folder: Path, kind: str, shapes: Mapping[str, Sequence[int]]) -> Path:
    """Write a case's checkpoint, its model and its projector, and return the folder."""
    if not folder.exists():
        write_folder(folder, kind, shapes)
        for name, mmproj in (("model", False), ("mmproj", True)):
            with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=mmproj)) as file:
                write_model(file, folder / f"{name}.gguf")
    return folder


def raster(inputs: Mapping[str, Any]) -> NDArray[np.int64] | slice:
    """Return the rows of patches by row and column of an image, without the empty ones of windows over its edge."""
    if "in_window" in inputs:
        return np.argsort(inputs["place"])
    if "hidden" not in inputs:
        return slice(None)
    filled = np.flatnonzero(inputs["hidden"][:, 0, 0] == 0)
    return filled[np.lexsort(inputs["places"][filled].T[::-1])]


def described(file: Path) -> dict[str, Any]:
    """Return a file's metadata, without those of the folder's name, and types, shapes and digests of its tensors."""
    with GGUFFile.open(file) as opened:
        keys = {key: opened.metadata.get(key) for key in opened.metadata if not key.startswith("general.")}
        tensors = {
            name: [tensor.type.name, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest()[:16]]
            for name, tensor in opened.tensors.items()
        }
    values = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in keys.items()}
    return {"metadata": values, "tensors": tensors}
