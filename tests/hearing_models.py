"""Configurations of tiny models that hear, and a sound by a formula; see make_fixtures/hearing_models.py."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from checkpoints import N_TOKENS, write_checkpoint
from vision_formulas import CASES as SEEING
from vision_models import CASES as VISION
from vision_models import PROCESSORS, TEXT

FIXTURE = Path(__file__).parent / "fixtures" / "hearing_models" / "values.npz"
SHAPES = FIXTURE.with_name("cases.json")
SECONDS = 1.7  # of the sound that rows and log-probabilities are of
SHORT_SECONDS = 0.16625  # of a sound that ends within a frame, from which a row begins
ODD_SECONDS = 0.085  # of one whose last row has no pair
RATE = 16_000
SOUND_TOKENIZER = "audio_tokenizer"  # folder of MiMo's encoder
SOUND = 410  # token id of a sound's rows

ENCODER: dict[str, Any] = {
    "d_model": 16, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "encoder_layers": 3, "num_mel_bins": 80,
    "max_source_positions": 1500,
}  # fmt: skip
_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

CASES: dict[str, dict[str, Any]] = {
    "qwen2audio": {
        "class": "Qwen2AudioForConditionalGeneration", "config_class": "Qwen2AudioConfig", "model_type": "qwen2_audio",
        "config": {
            "text_config": {
                key: value for key, value in TEXT.items() if key != "head_dim"
            } | _ROPE | {"model_type": "qwen2"},
            "audio_config": ENCODER | {"model_type": "qwen2_audio_encoder", "num_mel_bins": 128},
            "audio_token_index": SOUND,
        },
    },
    "voxtral": {
        "class": "VoxtralForConditionalGeneration", "config_class": "VoxtralConfig", "model_type": "voxtral",
        "config": {
            "text_config": TEXT | _ROPE | {"model_type": "llama"},
            "audio_config": {
                "model_type": "voxtral_encoder", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64,
                "num_hidden_layers": 3, "num_mel_bins": 128, "max_source_positions": 1500,
            },
            "audio_token_id": SOUND, "projector_hidden_act": "gelu",
        },
    },
    "audioflamingo3": {
        "class": "AudioFlamingo3ForConditionalGeneration", "config_class": "AudioFlamingo3Config",
        "model_type": "audioflamingo3",
        "config": {
            "text_config": {
                key: value for key, value in TEXT.items() if key != "head_dim"
            } | _ROPE | {"model_type": "qwen2"},
            "audio_config": {
                "model_type": "audioflamingo3_encoder", "hidden_size": 16, "num_attention_heads": 2,
                "intermediate_size": 24, "num_hidden_layers": 3, "num_mel_bins": 128, "max_source_positions": 1500,
            },
            "audio_token_id": SOUND,
        },
    },
    "gemma4unified": {
        "tokenizer": "gemma4", "class": "Gemma4UnifiedForConditionalGeneration", "config_class": "Gemma4UnifiedConfig",
        "model_type": "gemma4_unified",
        "config": VISION["gemma4unified"]["config"] | {
            "audio_config": {"model_type": "gemma4_unified_audio", "audio_embed_dim": 640}, "audio_token_id": SOUND,
            "boa_token_id": 411, "eoa_token_id": 412,
        },
    },
    "gemma4": {
        "tokenizer": "gemma4", "class": "Gemma4ForConditionalGeneration", "config_class": "Gemma4Config",
        "model_type": "gemma4",
        "config": VISION["gemma4"]["config"] | {
            "audio_config": {
                "model_type": "gemma4_audio", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                "subsampling_conv_channels": [128, 8], "output_proj_dims": 24,
            },
            "audio_token_id": SOUND, "boa_token_id": 411, "eoa_token_id": 412,
        },
    },
    "dots3note": {
        "class": "Dots3NoteForConditionalGeneration", "tokenizer": "dots", "config_class": "Dots3NoteConfig",
        "model_type": "dots3_note_unread",  # so that llama.cpp's converter reads the authors' keys, not transformers'
        "config": VISION["dots3note"]["config"] | {"image_token_id": 413, "audio_token_id": SOUND},
    },
    "mimo": {
        "class": "MiMoV2ForCausalLM", "model_type": "mimo_v2", "rate": 24_000,
        "config": SEEING["mimovl"]["config"] | {
            "audio_config": {"input_local_layers": 2, "group_size": 4, "audio_channels": 3},
        },
        "tokenizer_config": {
            "d_model": 16, "encoder_ffn_dim": 24, "encoder_attention_heads": 2, "encoder_layers": 4,
            "encoder_skip_layer_id": 3, "encoder_attn_window_size": [10, 10], "hybrid_attention": True,
            "swa_per_block": 2, "n_mels": 20,
        },
    },
    "gemma3n": {
        "class": "Gemma3nForConditionalGeneration", "config_class": "Gemma3nConfig", "model_type": "gemma3n",
        "config": {
            "text_config": TEXT | {
                "num_hidden_layers": 5, "num_kv_shared_layers": 0, "intermediate_size": 96,
                # Deviations are of 96 values here and in transformers, of 95 in llama.cpp and Pumice.
                "activation_sparsity_pattern": [NormalDist().cdf(NormalDist().inv_cdf(0.95) * (96 / 95) ** 0.5)] * 5,
                "layer_types": [*["sliding_attention"] * 4, "full_attention"], "vocab_size_per_layer_input": 396,
                "hidden_size_per_layer_input": 8, "laurel_rank": 4, "sliding_window": 64, "model_type": "gemma3n_text",
            },
            "vision_config": {"hidden_size": 2048, "vocab_offset": 396, "vocab_size": 12},
            "audio_config": {
                "model_type": "gemma3n_audio", "vocab_size": 13, "vocab_offset": 408, "input_feat_size": 32,
                "hidden_size": 32, "conf_num_attention_heads": 2, "conf_num_hidden_layers": 2,
                "sscp_conv_channel_size": [16, 8],
            },
            "audio_token_id": SOUND, "image_token_id": 397, "eoa_token_id": 408, "eoi_token_id": 396,
        },
    },
    "qwen3asr": {
        "class": "Qwen3ASRForConditionalGeneration", "config_class": "Qwen3ASRConfig", "model_type": "qwen3_asr",
        "inside": "thinker_config",
        "config": {
            "text_config": TEXT | {
                "rope_parameters": {**_ROPE["rope_parameters"], "mrope_section": [3, 3, 2]}, "model_type": "qwen3",
            },
            "audio_config": {key: value for key, value in ENCODER.items() if key != "max_source_positions"} | {
                "model_type": "qwen3_asr_encoder", "num_mel_bins": 16, "encoder_layers": 4, "downsample_hidden_size": 6,
                "output_dim": TEXT["hidden_size"],
            },
            "audio_token_id": SOUND, "tie_word_embeddings": False,
        },
    },
    "qwen25omni": {
        "class": "Qwen2_5OmniModel", "made_by": "Qwen2_5OmniThinkerForConditionalGeneration",
        "config_class": "Qwen2_5OmniThinkerConfig", "model_type": "qwen2_5_omni", "inside": "thinker_config",
        "config": {
            "text_config": VISION["qwen25vl"]["config"]["text_config"] | {"model_type": "qwen2_5_omni_text"},
            "vision_config": VISION["qwen25vl"]["config"]["vision_config"] | {
                "model_type": "qwen2_5_omni_vision_encoder",
            },
            "audio_config": ENCODER | {
                "model_type": "qwen2_5_omni_audio_encoder", "num_mel_bins": 128, "output_dim": TEXT["hidden_size"],
                "n_window": 100,
            },
            "audio_token_index": SOUND,
        },
    },
    "qwen3omni": {
        "class": "Qwen3OmniMoeForConditionalGeneration", "made_by": "Qwen3OmniMoeThinkerForConditionalGeneration",
        "config_class": "Qwen3OmniMoeThinkerConfig", "model_type": "qwen3_omni_moe", "inside": "thinker_config",
        "config": {
            "text_config": VISION["qwen3vlmoe"]["config"]["text_config"] | {"model_type": "qwen3_omni_moe_text"},
            "vision_config": VISION["qwen3vl"]["config"]["vision_config"] | {
                "model_type": "qwen3_omni_moe_vision_encoder",
            },
            "audio_config": {key: value for key, value in ENCODER.items() if key != "max_source_positions"} | {
                "model_type": "qwen3_omni_moe_audio_encoder", "num_mel_bins": 16, "downsample_hidden_size": 6,
                "output_dim": TEXT["hidden_size"],
            },
            "audio_token_id": SOUND,
        },
    },
    "glmasr": {
        "class": "GlmasrModel", "made_by": "GlmAsrForConditionalGeneration", "config_class": "GlmAsrConfig",
        "model_type": "Glmasr",
        "config": {
            "text_config": TEXT | {"model_type": "llama"},
            "audio_config": {
                "model_type": "glmasr_encoder", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64,
                "num_hidden_layers": 3, "num_mel_bins": 128,
            },
            "audio_token_id": SOUND,
        },
        "published": {
            "adapter_type": "mlp", "merge_factor": 4,
            "lm_config": TEXT | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
            "whisper_config": ENCODER | {"num_mel_bins": 128, "encoder_ffn_dim": 64, "model_type": "whisper"},
        },
    },
    "lfm2audio": {
        "class": "Lfm2AudioForConditionalGeneration", "model_type": "lfm2_audio",
        "config": {
            "lfm": {key: value for key, value in TEXT.items() if key != "head_dim"} | {
                "architectures": ["Lfm2ForCausalLM"], "layer_types": ["conv", "full_attention", "conv"],
                "conv_L_cache": 3, "norm_eps": 1e-6, "rope_theta": 1000000.0, "block_auto_adjust_ff_dim": False,
                "tie_word_embeddings": True, "model_type": "lfm2",
            },
            "encoder": {"d_model": 32, "n_heads": 2, "n_layers": 7, "feat_in": 128, "conv_kernel_size": 9},
        },
    },
    "parakeet": {
        "class": "NemotronH_Nano_VL_V2", "model_type": "NemotronH_Nano_Omni",
        "config": {
            **SEEING["nemotron_v2_vl"]["config"],
            "llm_config": TEXT | {
                "architectures": ["NemotronHForCausalLM"], "layers_block_type": ["mamba", "attention", "mlp"],
                "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "chunk_size": 8,
                "conv_kernel": 4, "vocab_size": N_TOKENS + 4, "layer_norm_epsilon": 1e-6, "model_type": "nemotron_h",
            },
            "sound_config": {
                "model_type": "parakeet", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                "intermediate_size": 48, "num_mel_bins": 128, "subsampling_factor": 8, "subsampling_conv_channels": 6,
                "conv_kernel_size": 5,
            },
        },
    },
    "granitespeech": {
        "class": "GraniteSpeechForConditionalGeneration", "config_class": "GraniteSpeechConfig",
        "model_type": "granite_speech",
        "config": {
            "text_config": {key: value for key, value in TEXT.items() if key != "head_dim"} | {
                "embedding_multiplier": 3.0, "logits_scaling": 1.0,  # which transformers 5 leaves out
                "attention_multiplier": 0.2, "residual_multiplier": 0.7, "model_type": "granite",
            },
            "encoder_config": {
                "model_type": "granite_speech_encoder", "input_dim": 160, "num_layers": 4, "hidden_dim": 32,
                "feedforward_mult": 2, "num_heads": 2, "dim_head": 16, "output_dim": 12, "context_size": 25,
                "max_pos_emb": 30, "conv_kernel_size": 5, "conv_expansion_factor": 2,
            },
            "projector_config": {
                "model_type": "blip_2_qformer", "hidden_size": 32, "encoder_hidden_size": 32, "num_attention_heads": 2,
                "num_hidden_layers": 2, "intermediate_size": 48, "cross_attention_frequency": 1,
            },
            "audio_token_index": SOUND, "window_size": 15, "downsample_rate": 5, "has_lora_adapter": False,
        },
    },
    "meralion": {
        "tokenizer": "spm", "class": "MERaLiON2ForConditionalGeneration", "model_type": "meralion2",
        "config": {
            "speech_mlp_scale_factor": 15, "speech_config": ENCODER | {"model_type": "whisper"},
            "text_config": TEXT | {
                "architectures": ["Gemma2ForCausalLM"], "query_pre_attn_scalar": 16, "sliding_window": 64,
                "tie_word_embeddings": True, "model_type": "gemma2",
            },
        },
    },
    "ultravox": {
        "class": "UltravoxModel", "model_type": "ultravox",
        "config": {
            "hidden_size": 48, "stack_factor": 8, "projector_act": "swiglu", "projector_ln_mid": True, "norm_init": 0.4,
            "audio_config": ENCODER | {"model_type": "whisper"}, "text_config": TEXT | {"model_type": "llama"},
        },
    },
}  # fmt: skip

CASES["granitespeechplus"] = {
    **CASES["granitespeech"],
    "class": "GraniteSpeechPlusForConditionalGeneration",
    "config_class": "GraniteSpeechPlusConfig",
    "model_type": "granite_speech_plus",
    "config": CASES["granitespeech"]["config"]
    | {
        "encoder_config": CASES["granitespeech"]["config"]["encoder_config"]
        | {"model_type": "granite_speech_plus_encoder", "cat_hidden_layers": [1, 2]},
        "projector_config": CASES["granitespeech"]["config"]["projector_config"] | {"encoder_hidden_size": 96},
    },
}

GLM_NAMES = {
    "audio_tower.norm.": "audio_encoder.layer_norm.", "audio_tower.": "audio_encoder.whisper.",
    "multi_modal_projector.linear_1.": "audio_encoder.adapting.0.",
    "multi_modal_projector.linear_2.": "audio_encoder.adapting.2.", ".input_layernorm.": ".self_attn_layer_norm.",
    ".post_attention_layernorm.": ".final_layer_norm.", ".mlp.fc": ".fc", ".o_proj.": ".out_proj.",
}  # fmt: skip
"""Parts of names of transformers' GLM-ASR, and what stands for them in the authors' checkpoint."""
GLM_UNUSED = {
    "audio_encoder.audio_bos_eos_token.weight": [2, TEXT["hidden_size"]],
    "audio_encoder.whisper.embed_positions.weight": [1500, 16],
}


def sound(seconds: float, rate: int = RATE) -> np.ndarray:
    """Return a rising tone with pauses, float32."""
    t = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t) * (np.sin(2 * np.pi * 3 * t) > -0.5)).astype(np.float32)


def config_of(kind: str) -> dict[str, Any]:
    """Return a case's ``config.json``."""
    case = CASES[kind]
    config = {case["inside"]: case["config"]} if "inside" in case else case.get("published", case["config"])
    return {"architectures": [case["class"]], "model_type": case["model_type"], **config}


def published(kind: str, name: str) -> str:
    """Return the name of a tensor as the authors of the model publish it."""
    if kind == "glmasr":
        names = {"language_model.model.": "model."} if name.startswith("language_model.") else GLM_NAMES
        for part, theirs in names.items():
            name = name.replace(part, theirs)
        return name
    if kind in ("qwen25omni", "qwen3omni"):
        return f"thinker.{name}"
    if kind != "qwen3asr":
        return name
    name = name.removeprefix("model.").replace("multi_modal_projector.linear_", "audio_tower.proj")
    name = name.replace("language_model.", "model.")
    return f"thinker.{name}"


def write_folder(folder: Path, kind: str, shapes: Mapping[str, Sequence[int]]) -> Path:
    """Write a case's checkpoint."""
    tokenizer_kind = CASES[kind].get("tokenizer", "bpe")
    own = {name: shape for name, shape in shapes.items() if not name.startswith("encoder.") or kind != "mimo"}
    more = {name: shapes[name] for name in shapes.keys() - own.keys()}
    modules = {f"{SOUND_TOKENIZER}/model.safetensors": dict(sorted(more.items()))} if more else None
    write_checkpoint(folder, config_of(kind), own, tokenizer_kind, modules=modules)
    if more:
        (folder / SOUND_TOKENIZER / "config.json").write_text(json.dumps(CASES[kind]["tokenizer_config"]))
    (folder / "tokenizer_config.json").write_text("{}")
    seeing = {"qwen25omni": "qwen25vl", "qwen3omni": "qwen3vl"}.get(kind, kind)
    formulas = SEEING.get({"parakeet": "nemotron_v2_vl", "mimo": "mimovl"}.get(kind, kind))
    processor = formulas["processor"] if formulas else PROCESSORS.get(seeing)
    if processor:  # it sees, too
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    if tokenizer_kind != "bpe":
        return folder
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": N_TOKENS, "content": "[BEGIN_AUDIO]"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
