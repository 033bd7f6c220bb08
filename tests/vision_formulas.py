"""Tiny vision encoders beside formulas of their authors; see make_fixtures/vision_formulas.py.

Checkpoints have the names of the published ones. Types of the oldest files have no conversion, and their tensors the
names of these files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkpoints import N_TOKENS, write_checkpoint

FIXTURE = Path(__file__).parent / "fixtures" / "vision_formulas" / "values.npz"
FILES = FIXTURE.with_name("cases.json")
SIZE = (90, 50)  # of the picture whose rows are compared
SIZES = ((20, 11), (201, 130), SIZE)  # of those whose pixels are compared
Shapes = dict[str, Sequence[int]]
_CLIP = {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}
N, FF, TEXT = 32, 48, 64  # width of an encoder, of its feed-forward, and of the language model


def _named(prefix: str, parts: Mapping[str, Sequence[int]], bias: bool = True) -> Shapes:
    """Return matrices with their biases, and vectors of norms with theirs."""
    shapes: Shapes = {}
    for name, shape in parts.items():
        shapes[f"{prefix}{name}.weight"] = shape
        if bias:
            shapes[f"{prefix}{name}.bias"] = shape[:1]
    return shapes


def _layers(prefix: str, n: int, parts: Mapping[str, Sequence[int]], bias: bool = True) -> Shapes:
    return {k: v for i in range(n) for k, v in _named(f"{prefix}{i}.", parts, bias).items()}


SIGLIP: dict[str, Sequence[int]] = {
    **{f"self_attn.{name}_proj": (N, N) for name in ("q", "k", "v", "out")},
    **dict.fromkeys(("layer_norm1", "layer_norm2"), (N,)),
    "mlp.fc1": (FF, N),
    "mlp.fc2": (N, FF),
}
OLD_BLOCK: dict[str, Sequence[int]] = {
    **{f"attn_{part}": (N, N) for part in ("q", "k", "v", "out")},
    **dict.fromkeys(("ln1", "ln2"), (N,)),
    "ffn_down": (FF, N),
    "ffn_up": (N, FF),
}
QWEN3: dict[str, Sequence[int]] = {
    "attn.qkv": (3 * N, N), "attn.proj": (N, N), **dict.fromkeys(("norm1", "norm2"), (N,)), "mlp.linear_fc1": (FF, N),
    "mlp.linear_fc2": (N, FF),
}  # fmt: skip
STEP: Shapes = {
    "vision_model.conv1.weight": (N, 3, 4, 4),
    "vision_model.positional_embedding": (169, N),
    **_named("vision_model.", {"ln_pre": (N,)}),
    **_named("vision_model.", {"vit_downsampler1": (2 * N, N, 3, 3), "vit_downsampler2": (4 * N, 2 * N, 3, 3)}),
    "vit_large_projector.weight": (TEXT, 4 * N),
}
for _i in range(2):
    _p = f"vision_model.transformer.resblocks.{_i}."
    STEP |= {f"{_p}attn.in_proj_weight": (3 * N, N), f"{_p}attn.in_proj_bias": (3 * N,)}
    STEP |= _named(_p, {"attn.out_proj": (N, N), "ln_1": (N,), "ln_2": (N,)})
    STEP |= _named(_p, {"mlp.c_fc": (FF, N), "mlp.c_proj": (N, FF)})
    STEP |= {f"{_p}ls_1.gamma": (N,), f"{_p}ls_2.gamma": (N,)}
NEMOTRON: Shapes = {
    "vision_model.radio_model.model.patch_generator.embedder.weight": (N, 192),
    "vision_model.radio_model.model.patch_generator.pos_embed": (1, 36, N),
    "vision_model.radio_model.model.patch_generator.cls_token.token": (3, N),
    **_layers(
        "vision_model.radio_model.model.blocks.", 2,
        {
            "attn.qkv": (3 * N, N), "attn.proj": (N, N), "norm1": (N,), "norm2": (N,), "mlp.fc1": (FF, N),
            "mlp.fc2": (N, FF),
        },
    ),
    "mlp1.0.weight": (4 * N,), "mlp1.1.weight": (80, 4 * N), "mlp1.3.weight": (TEXT, 80),
}  # fmt: skip
OLD_CLIP: Shapes = {
    "v.patch_embd.weight": (N, 3, 8, 8), "v.class_embd": (N,), "v.position_embd.weight": (65, N),
    **_named("v.", {"pre_ln": (N,)}), **_layers("v.blk.", 3, OLD_BLOCK),
}  # fmt: skip
GATE = {"fc1": (16, TEXT), "fc2": (TEXT, 16)}  # files of MobileVLM lack dimensions of 1
_BLOCK = "mm.model.mb_block."
OLD: dict[str, Shapes] = {
    "ldp": {
        **OLD_CLIP, **_named("mm.model.mlp.", {"1": (TEXT, N), "3": (TEXT, TEXT)}),
        **{f"{_BLOCK}{i}.block.0.0.weight": (TEXT, 3, 3) for i in (1, 2)},
        **{f"{_BLOCK}{i}.block.2.0.weight": (TEXT, TEXT) for i in (1, 2)},
        **{k: v for i in (1, 2) for k, v in _named(f"{_BLOCK}{i}.block.", {"0.1": (TEXT,), "2.1": (TEXT,)}).items()},
        **{k: v for i in (1, 2) for k, v in _named(f"{_BLOCK}{i}.block.1.", GATE).items()},
    },
    "ldpv2": {
        **OLD_CLIP, **_named("mm.model.mlp.", {"0": (TEXT, N), "2": (TEXT, TEXT)}),
        **_named("mm.model.peg.", {"0": (TEXT, 3, 3)}),
    },
    "adapter": {
        "v.patch_embd.weight": (N, 3, 8, 8), "v.patch_embd.bias": (N,), "v.position_embd.weight": (64, N),
        **_named("v.", {"post_ln": (N,)}), **_layers("v.blk.", 2, OLD_BLOCK),
        **_named("adapter.", {"conv": (N, N, 2, 2)}), "adapter.linear.linear.weight": (TEXT, N),
        **_named("adapter.linear.", {"norm1": (TEXT,)}), "adapter.linear.gate.weight": (96, TEXT),
        "adapter.linear.dense_h_to_4h.weight": (96, TEXT), "adapter.linear.dense_4h_to_h.weight": (TEXT, 96),
        "adapter.boi": (1, 1, TEXT), "adapter.eoi": (1, 1, TEXT),
    },
}  # fmt: skip


def _sam(n_layer: int, n: int, window: int, side: int, patch: int, out: int) -> Shapes:
    """Return the encoder of Segment Anything with convolutions behind it."""
    d, p = n // 2, "model.sam_model."
    last = WHOLE_BLOCK if n_layer > WHOLE_BLOCK else n_layer
    relative = {
        f"{p}blocks.{i}.attn.rel_pos_{axis}": (2 * (side if i == last else window) - 1, d)
        for i in range(n_layer)
        for axis in "hw"
    }
    return {
        f"{p}pos_embed": (1, side, side, n),
        **_named(f"{p}patch_embed.", {"proj": (n, 3, patch, patch)}),
        **_layers(f"{p}blocks.", n_layer, {
            "attn.qkv": (3 * n, n), "attn.proj": (n, n), "norm1": (n,), "norm2": (n,), "mlp.lin1": (FF, n),
            "mlp.lin2": (n, FF),
        }),
        **relative,
        f"{p}neck.0.weight": (24, n, 1, 1),
        **_named(f"{p}neck.", {"1": (24,), "3": (24,)}),
        f"{p}neck.2.weight": (24, 24, 3, 3),
        f"{p}net_2.weight": (24, 24, 3, 3),
        f"{p}net_3.weight": (out, 24, 3, 3),
    }  # fmt: skip


def _mobilenet() -> Shapes:
    """Return a tiny MobileNetV5 of the names that timm gives: every kind of block of the published one."""
    shapes: Shapes = {}

    def add(name: str, n_out: int, n_in: int, kernel: int, norm: str) -> None:
        shapes[f"{name}.weight"] = (n_out, n_in, kernel, kernel)
        shapes[f"{norm}.weight"] = (n_out,)

    def inverted(blk: str, n_in: int, n: int, n_out: int, start: int = 0, middle: int = 0) -> None:
        if start:
            add(f"{blk}dw_start.conv", n_in, 1, start, f"{blk}dw_start.bn")
        add(f"{blk}pw_exp.conv", n, n_in, 1, f"{blk}pw_exp.bn")
        if middle:
            add(f"{blk}dw_mid.conv", n, 1, middle, f"{blk}dw_mid.bn")
        add(f"{blk}pw_proj.conv", n_out, n, 1, f"{blk}pw_proj.bn")
        shapes[f"{blk}layer_scale.gamma"] = (n_out,)

    def attention(blk: str, n: int, heads: int, dim: int, halves: bool) -> None:
        shapes.update({f"{blk}norm.weight": (n,), f"{blk}attn.query.proj.weight": (heads * dim, n, 1, 1)})
        for part in ("key", "value"):
            if halves:
                add(f"{blk}attn.{part}.down_conv", n, 1, 3, f"{blk}attn.{part}.norm")
            shapes[f"{blk}attn.{part}.proj.weight"] = (dim, n, 1, 1)
        shapes.update({f"{blk}attn.output.proj.weight": (n, heads * dim, 1, 1), f"{blk}layer_scale.gamma": (n,)})

    add("conv_stem.conv", 8, 3, 3, "conv_stem.bn")
    shapes["conv_stem.conv.bias"] = (8,)
    for i, n_in in enumerate((8, 16)):
        add(f"blocks.0.{i}.conv_exp", 2 * n_in, n_in, 3, f"blocks.0.{i}.bn1")
        add(f"blocks.0.{i}.conv_pwl", 16, 2 * n_in, 1, f"blocks.0.{i}.bn2")
    inverted("blocks.1.0.", 16, 32, 16, start=3, middle=5)
    inverted("blocks.1.1.", 16, 32, 16, start=5)
    inverted("blocks.2.0.", 16, 32, 24, start=5, middle=5)
    inverted("blocks.2.1.", 24, 48, 24, start=5)
    inverted("blocks.2.2.", 24, 24, 24)
    attention("blocks.2.3.", 24, 2, 8, halves=True)
    inverted("blocks.2.4.", 24, 48, 24)
    inverted("blocks.3.0.", 24, 48, 32, start=5, middle=5)
    attention("blocks.3.1.", 32, 2, 16, halves=False)
    inverted("blocks.3.2.", 32, 64, 32)
    add("msfa.ffn.pw_exp.conv", 112, 56, 1, "msfa.ffn.pw_exp.bn")
    add("msfa.ffn.pw_proj.conv", WIDE, 112, 1, "msfa.ffn.pw_proj.bn")
    return {**shapes, "msfa.norm.weight": (WIDE,)}


WIDE = 2048  # of MobileNetV5's result, which timm has fixed
WHOLE_BLOCK = 2  # of Segment Anything, which attends to the whole image
#: Configurations, shapes and processors' settings of checkpoints.
COGVLM_TEXT: Shapes = {
    "model.embed_tokens.weight": (N_TOKENS, TEXT),
    "model.norm.weight": (TEXT,),
    "lm_head.weight": (N_TOKENS, TEXT),
}
for _i in range(2):
    _p = f"model.layers.{_i}."
    COGVLM_TEXT |= {f"{_p}{name}_layernorm.weight": (TEXT,) for name in ("input", "post_attention")}
    for _kind in ("language", "vision"):
        COGVLM_TEXT |= {
            f"{_p}self_attn.{_kind}_expert_query_key_value.weight": (3 * TEXT, TEXT),
            f"{_p}self_attn.{_kind}_expert_dense.weight": (TEXT, TEXT),
            f"{_p}mlp.{_kind}_mlp.gate_proj.weight": (FF, TEXT),
            f"{_p}mlp.{_kind}_mlp.up_proj.weight": (FF, TEXT),
            f"{_p}mlp.{_kind}_mlp.down_proj.weight": (TEXT, FF),
        }


def _cogvlm_2_text() -> Shapes:
    """Return CogVLM's language model with two heads of keys, and biases of the queries, keys and values of images."""
    shapes: Shapes = {}
    for name, shape in COGVLM_TEXT.items():
        shapes[name] = (2 * TEXT, TEXT) if name.endswith("query_key_value.weight") else shape
        if name.endswith("vision_expert_query_key_value.weight"):
            shapes[name.replace(".weight", ".bias")] = (2 * TEXT,)
    return shapes


CASES: dict[str, dict[str, Any]] = {
    "cogvlm": {
        "config": {
            "architectures": ["CogVLMForCausalLM"], "hidden_size": TEXT, "intermediate_size": FF,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": N_TOKENS,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "vision_config": {
                "hidden_size": N, "image_size": 64, "intermediate_size": FF, "num_heads": 2, "num_hidden_layers": 3,
                "patch_size": 8, "layer_norm_eps": 1e-6, "hidden_act": "gelu",
            },
        },
        "processor": _CLIP,
        "shapes": {
            **COGVLM_TEXT, "model.vision.boi": (1, 1, TEXT), "model.vision.eoi": (1, 1, TEXT),
            "model.vision.patch_embedding.cls_embedding": (1, N),
            "model.vision.patch_embedding.position_embedding.weight": (65, N),
            **_named("model.vision.patch_embedding.", {"proj": (N, 3, 8, 8)}),
            **_layers(
                "model.vision.transformer.layers.", 3,
                {
                    "attention.query_key_value": (3 * N, N), "attention.dense": (N, N), "input_layernorm": (N,),
                    "post_attention_layernorm": (N,), "mlp.fc1": (FF, N), "mlp.fc2": (N, FF),
                },
            ),
            "model.vision.linear_proj.linear_proj.weight": (TEXT, N),
            **_named("model.vision.linear_proj.", {"norm1": (TEXT,)}),
            **_named(
                "model.vision.linear_proj.",
                {"gate_proj": (FF, TEXT), "dense_h_to_4h": (FF, TEXT), "dense_4h_to_h": (TEXT, FF)}, bias=False,
            ),
        },
    },
    "step3vl": {
        "config": {
            "architectures": ["StepVLForConditionalGeneration"], "hidden_size": TEXT, "understand_projector_stride": 2,
            "vision_config": {
                "width": N, "layers": 2, "heads": 2, "image_size": 52, "patch_size": 4, "mlp_ratio": FF / N,
            },
        },
        "processor": {}, "shapes": STEP,
    },
    "minimax_m3": {
        "config": {
            "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "text_config": {"hidden_size": TEXT},
            "vision_config": {
                "hidden_size": N, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 112, "patch_size": 8,
                "intermediate_size": FF, "img_token_compression_config": {"spatial_merge_size": 2},
            },
        },
        "processor": {"image_mean": [0.5] * 3, "image_std": [0.25] * 3},
        "shapes": {
            "vision_tower.vision_model.embeddings.patch_embedding.weight": (N, 3, 2, 8, 8),
            **_named("vision_tower.vision_model.", {"pre_layrnorm": (N,)}),
            **_layers("vision_tower.vision_model.encoder.layers.", 3, SIGLIP),
            **_named("multi_modal_projector.", {"linear_1": (40, N), "linear_2": (TEXT, 40)}),
            **_named("patch_merge_mlp.", {"linear_1": (40, 4 * TEXT), "linear_2": (TEXT, 40)}),
        },
    },
    "glm5v": {
        "config": {
            "architectures": ["Glm5NextForConditionalGeneration"], "text_config": {"hidden_size": TEXT},
            "vision_config": {
                "hidden_size": N, "depth": 2, "num_heads": 2, "image_size": 48, "patch_size": 8, "hidden_act": "silu",
                "intermediate_size": FF, "out_hidden_size": TEXT, "spatial_merge_size": 2, "swiglu_limit": 0.5,
                "projection_intermediate_size": 80,
            },
        },
        "processor": {
            "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "patch_size": 8, "merge_size": 2, "min_image_tokens": 4,
            "max_image_tokens": 48,
        },
        "shapes": {
            "visual.patch_embed.proj.weight": (N, 3, 2, 8, 8), "visual.patch_embed.proj.bias": (N,),
            **_layers(
                "visual.blocks.", 2,
                {
                    "attn.qkv": (3 * N, N), "attn.proj": (N, N), "mlp.gate_proj": (FF, N), "mlp.up_proj": (FF, N),
                    "mlp.down_proj": (N, FF),
                },
            ),
            **_layers(
                "visual.blocks.", 2, {"attn.q_norm": (16,), "attn.k_norm": (16,), "norm1": (N,), "norm2": (N,)},
                bias=False,
            ),
            "visual.post_layernorm.weight": (N,), **_named("visual.", {"downsample": (TEXT, N, 2, 2)}),
            "visual.merger.proj.weight": (TEXT, TEXT), **_named("visual.merger.", {"post_projection_norm": (TEXT,)}),
            "visual.merger.gate_proj.weight": (80, TEXT), "visual.merger.up_proj.weight": (80, TEXT),
            "visual.merger.down_proj.weight": (TEXT, 80),
        },
    },
    "deepseekocr": {
        "config": {
            "architectures": ["DeepseekOCRForCausalLM"], "hidden_size": TEXT,
            "vision_config": {
                "image_size": 64,
                "width": {
                    "sam_vit_b": {"width": 16, "layers": 3, "heads": 2},
                    "clip-l-14-224": {"width": N, "layers": 4, "heads": 2, "image_size": 64, "patch_size": 4},
                },
            },
        },
        "processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        "shapes": {
            **_sam(3, 16, 14, 16, 4, N), "model.vision_model.embeddings.class_embedding": (N,),
            "model.vision_model.embeddings.position_embedding.weight": (17, N),
            **_named("model.vision_model.", {"pre_layrnorm": (N,)}),
            **_layers(
                "model.vision_model.transformer.layers.", 4,
                {
                    "self_attn.qkv_proj": (3 * N, N), "self_attn.out_proj": (N, N), "layer_norm1": (N,),
                    "layer_norm2": (N,), "mlp.fc1": (FF, N), "mlp.fc2": (N, FF),
                },
            ),
            **_named("model.projector.", {"layers": (TEXT, 2 * N)}), "model.image_newline": (TEXT,),
            "model.view_seperator": (TEXT,),
        },
        "picture": (80, 70),
    },
    "deepseekocr2": {
        "config": {
            "architectures": ["DeepseekOCR2ForCausalLM"], "hidden_size": TEXT,
            "vision_config": {
                "image_size": 1024, "layers": 4, "num_attention_heads": 4, "intermediate_size": FF,
                "width": {"sam_vit_b": {"width": 16, "layers": 3, "heads": 2}, "qwen2-0-5b": {"dim": N}},
            },
        },
        "processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        "shapes": {
            **_sam(3, 16, 14, 16, 4, N), "model.qwen2_model.query_768.weight": (9, N),
            "model.qwen2_model.query_1024.weight": (16, N),
            **_layers(
                "model.qwen2_model.model.model.layers.", 4,
                {"self_attn.q_proj": (N, N), "self_attn.k_proj": (N // 2, N), "self_attn.v_proj": (N // 2, N)},
            ),
            **_layers(
                "model.qwen2_model.model.model.layers.", 4,
                {
                    "self_attn.o_proj": (N, N), "mlp.gate_proj": (FF, N), "mlp.up_proj": (FF, N),
                    "mlp.down_proj": (N, FF), "input_layernorm": (N,), "post_attention_layernorm": (N,),
                },
                bias=False,
            ),
            "model.qwen2_model.model.model.norm.weight": (N,), **_named("model.projector.", {"layers": (TEXT, N)}),
            "model.view_seperator": (TEXT,),
        },
        "picture": (80, 60),
    },
    "dots_ocr": {
        "config": {
            "architectures": ["DotsOCRForCausalLM"], "hidden_size": TEXT,
            "vision_config": {
                "hidden_size": N, "embed_dim": N, "num_hidden_layers": 3, "num_attention_heads": 2,
                "intermediate_size": FF, "patch_size": 8, "spatial_merge_size": 2, "rms_norm_eps": 1e-5,
            },
        },
        "processor": {
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2,
        },
        "shapes": {
            **_named("vision_tower.patch_embed.patchifier.", {"proj": (N, 3, 8, 8)}),
            "vision_tower.patch_embed.patchifier.norm.weight": (N,),
            **_layers(
                "vision_tower.blocks.", 3,
                {
                    "attn.qkv": (3 * N, N), "attn.proj": (N, N), "norm1": (N,), "norm2": (N,), "mlp.fc1": (FF, N),
                    "mlp.fc2": (N, FF), "mlp.fc3": (FF, N),
                },
                bias=False,
            ),
            "vision_tower.post_trunk_norm.weight": (N,),
            **_named("vision_tower.merger.", {"ln_q": (N,), "mlp.0": (4 * N, 4 * N), "mlp.2": (TEXT, 4 * N)}),
        },
    },
    "gemma3n": {
        "config": {
            "architectures": ["Gemma3nForConditionalGeneration"], "text_config": {"hidden_size": TEXT},
            "vision_config": {"hidden_size": WIDE},
            "audio_config": {
                # which llama.cpp's converter reads
                "conf_num_hidden_layers": 1, "conf_num_attention_heads": 2, "input_feat_size": 8, "hidden_size": 16,
            },
        },
        "processor": {"size": {"height": 128, "width": 128}, "image_seq_length": 16},
        "shapes": {
            **{f"model.vision_tower.timm_model.{name}": shape for name, shape in _mobilenet().items()},
            "model.embed_vision.embedding.weight": (12, WIDE),
            "model.embed_vision.embedding_projection.weight": (TEXT, WIDE),
            "model.embed_vision.hard_embedding_norm.weight": (WIDE,),
            "model.embed_vision.soft_embedding_norm.weight": (WIDE,),
        },
    },
    "deepseek4v": {
        "config": {
            "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": TEXT, "vision_n_layers": 3, "vision_dim": N,
            "vision_n_heads": 2, "vision_inter_dim": FF, "vision_patch_size": 8, "vision_downsample_ratio": 3,
            "vision_min_pixels": 24**2, "vision_max_n_token": 384, "vision_max_wh_ratio": 8,
        },
        "processor": {},
        "shapes": {
            **_named("vision.patch_embed.", {"proj": (N, 192)}),
            **_layers(
                "vision.blocks.", 3,
                {
                    "attn.wqkv": (3 * N, N), "attn.wo": (N, N), "norm1": (N,), "norm2": (N,), "mlp.w1": (2 * FF, N),
                    "mlp.w2": (N, FF),
                },
                bias=False,
            ),
            "vision.norm.weight": (N,), **_named("aligner.", {"w1": (80, 9 * N), "w2": (TEXT, 80)}),
            **{f"image_{mark}": (TEXT,) for mark in ("start", "end", "newline", "pad")},
        },
    },
    "youtuvl": {
        "config": {
            "architectures": ["YoutuVLForConditionalGeneration"], "hidden_size": TEXT,
            "vision_config": {
                "hidden_size": N, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 8,
                "intermediate_size": FF, "window_size": 32, "fullatt_block_indexes": [1],
            },
        },
        "processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        "shapes": {
            **_named("siglip2.vision_model.embeddings.", {"patch_embedding": (N, 192)}),
            **_layers("siglip2.vision_model.encoder.layers.", 3, SIGLIP),
            **_named("siglip2.vision_model.", {"post_layernorm": (N,)}), "merger.ln_q.weight": (N,),
            **_named("merger.mlp.", {"0": (4 * N, 4 * N), "2": (TEXT, 4 * N)}),
        },
    },
    "phi4": {
        "config": {
            "architectures": ["Phi4ForCausalLMV"], "hidden_size": TEXT,
            "vision_config": {
                "hidden_size": N, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": FF,
            },
        },
        "processor": {
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": 8, "min_num_patches": 16,
            "max_num_patches": 64,
        },
        "shapes": {
            **_named("model.vision_tower.vision_tower.vision_model.embeddings.", {"patch_embedding": (N, 192)}),
            "model.vision_tower.vision_tower.vision_model.embeddings.position_embedding.weight": (36, N),
            **_layers("model.vision_tower.vision_tower.vision_model.encoder.layers.", 3, SIGLIP),
            **_named("model.vision_tower.vision_tower.vision_model.", {"post_layernorm": (N,)}),
            **_named("model.mm_projector.", {"0": (TEXT, N), "2": (TEXT, TEXT)}),
        },
    },
    "ling3vl": {
        "config": {
            "architectures": ["BailingMoeV3VLForConditionalGeneration"],
            "text_config": {"hidden_size": TEXT, "rms_norm_eps": 1e-6},
            "vision_config": {
                "hidden_size": N, "depth": 2, "num_heads": 2, "patch_size": 8, "intermediate_size": FF,
                "out_hidden_size": 4 * N, "spatial_merge_size": 2, "temporal_patch_size": 2,
                "num_position_embeddings": 36, "disable_merger_proj": True, "deepstack_visual_indexes": [],
            },
        },
        "processor": {
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
            "size": {"shortest_edge": 4 * 16**2, "longest_edge": 64 * 16**2},
        },
        "shapes": {
            "model.visual.patch_embed.proj.weight": (N, 3, 2, 8, 8), "model.visual.pos_embed.weight": (36, N),
            **_layers("model.visual.blocks.", 2, QWEN3), **_named("model.visual.merger.", {"norm": (N,)}),
            **_named("linear_proj.", {"0": (80, 4 * N), "2": (TEXT, 80)}),
        },
    },
    "nemotron_v2_vl": {
        "config": {
            "architectures": ["NemotronH_Nano_VL_V2"], "hidden_size": TEXT, "force_image_size": 64, "patch_size": 8,
            "downsample_ratio": 0.5,
            "vision_config": {
                "hidden_size": N, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": FF,
                "patch_size": 8,
            },
        },
        "processor": {"max_num_tiles": 4}, "shapes": NEMOTRON,
    },
    "mimovl": {
        "config": {
            "architectures": ["MiMoV2ForCausalLM"], "hidden_size": TEXT,
            "vision_config": {
                "hidden_size": N, "depth": 4, "num_heads": 4, "num_key_value_heads": 2, "qk_channels": 16,
                "patch_size": 8, "intermediate_size": FF, "spatial_merge_size": 2, "visual_token_window_size": 6,
                "vit_window_attn_types": [-1, 0, 1, 1], "use_sink": True,
            },
        },
        "processor": {
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "min_pixels": 4 * 16**2, "max_pixels": 64 * 16**2,
        },
        "shapes": {
            "visual.patch_embed.proj.weight": (N, 3, 2, 8, 8),
            **_layers(
                "visual.blocks.", 4,
                {
                    "attn.qkv": (128, N), "attn.proj": (N, 64), "mlp.gate_proj": (FF, N), "mlp.up_proj": (FF, N),
                    "mlp.down_proj": (N, FF),
                },
            ),
            **_layers("visual.blocks.", 4, {"norm1": (N,), "norm2": (N,)}, bias=False),
            **{f"visual.blocks.{i}.attn.sinks": (4,) for i in range(1, 4)}, **_named("visual.merger.", {"ln_q": (N,)}),
            "visual.merger.mlp.0.weight": (4 * N, 4 * N), "visual.merger.mlp.2.weight": (TEXT, 4 * N),
        },
    },
    "smolvlm": {
        "config": {
            "architectures": ["SmolVLMForConditionalGeneration"], "scale_factor": 2,
            "text_config": {"hidden_size": TEXT},
            "vision_config": {
                "model_type": "smolvlm_vision", "hidden_size": N, "num_hidden_layers": 2, "num_attention_heads": 2,
                "intermediate_size": FF, "image_size": 32, "patch_size": 8, "layer_norm_eps": 1e-6,
            },
        },
        "processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"longest_edge": 64}},
        "shapes": {
            **_named("model.vision_model.embeddings.", {"patch_embedding": (N, 3, 8, 8)}),
            "model.vision_model.embeddings.position_embedding.weight": (16, N),
            **_layers("model.vision_model.encoder.layers.", 2, SIGLIP),
            **_named("model.vision_model.", {"post_layernorm": (N,)}),
            "model.connector.modality_projection.proj.weight": (TEXT, 4 * N),
        },
    },
    "kimivl": {
        "config": {
            "architectures": ["KimiVLForConditionalGeneration"], "text_config": {"hidden_size": TEXT},
            "vision_config": {
                "hidden_size": N, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": FF,
                "patch_size": 8, "init_pos_emb_height": 6, "init_pos_emb_width": 6, "merge_kernel_size": [2, 2],
            },
        },
        "processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "in_token_limit": 4096},
        "shapes": {
            **_named("vision_tower.patch_embed.", {"proj": (N, 3, 8, 8)}),
            "vision_tower.patch_embed.pos_emb.weight": (6, 6, N),
            **_layers(
                "vision_tower.encoder.blocks.", 3,
                {
                    "wqkv": (3 * N, N), "wo": (N, N), "norm0": (N,), "norm1": (N,), "mlp.fc0": (FF, N),
                    "mlp.fc1": (N, FF),
                },
            ),
            **_named("vision_tower.encoder.", {"final_layernorm": (N,)}),
            **_named("multi_modal_projector.", {"pre_norm": (N,), "linear_1": (4 * N, 4 * N)}),
            **_named("multi_modal_projector.", {"linear_2": (TEXT, 4 * N)}),
        },
    },
}  # fmt: skip
#: Cases whose rows are compared elsewhere.
YASA_WIDTHS, YASA_DEPTHS = (16, 24), (1, 2)  # of the stages of ConvNeXt V2


def _yasa() -> Shapes:
    """Return the tensors of a file of Yasa 2, which has no conversion."""
    shapes: Shapes = {"v.vision_pos_embed": (256, YASA_WIDTHS[-1])}
    shapes |= _named("v.", {"patch_embd": (YASA_WIDTHS[0], 3, 4, 4), "patch_ln": YASA_WIDTHS[:1]})
    for stage, (n, depth) in enumerate(zip(YASA_WIDTHS, YASA_DEPTHS, strict=True)):
        if stage:
            before = YASA_WIDTHS[stage - 1]
            shapes |= _named(f"v.stage.{stage}.down.", {"ln": (before,), "conv": (n, before, 2, 2)})
        parts = {"dw": (n, 1, 7, 7), "ln": (n,), "pw1": (4 * n, n), "grn": (4 * n,), "pw2": (n, 4 * n)}
        shapes |= _layers(f"v.stage.{stage}.blk.", depth, parts)
    return shapes | _named("mm.", {"0": (TEXT, YASA_WIDTHS[-1]), "2": (TEXT, TEXT)})


OLD["yasa2"] = _yasa()
_COGVLM = CASES["cogvlm"]
CASES["cogvlm2"] = {
    **_COGVLM,
    "config": {
        key: value for key, value in _COGVLM["config"].items() if key not in ("num_key_value_heads", "rope_theta")
    }
    | {"num_multi_query_heads": 2},
    "shapes": {
        **{name: shape for name, shape in _COGVLM["shapes"].items() if name not in COGVLM_TEXT},
        **_cogvlm_2_text(),
        **_named("model.vision.", {"conv": (N, N, 2, 2)}),
    },
}
CONVERTED = ("kimivl", "smolvlm")
#: Keys ``clip.vision.*`` of the oldest files.
KEYS: dict[str, Any] = {
    "image_size": 64, "patch_size": 8, "embedding_length": N, "feed_forward_length": FF, "attention.head_count": 2,
    "attention.layer_norm_epsilon": 1e-5, "projection_dim": TEXT, **_CLIP,
}  # fmt: skip
BLOCKS = {"ldp": 3, "ldpv2": 3, "adapter": 2, "yasa2": 0}
OTHER_KEYS = {"yasa2": {"image_size": 128, "patch_size": 4, "attention.layer_norm_epsilon": 1e-6}}
# llama.cpp's converter wants MiMo's sound, too, and knows Nemotron's encoder in its published size alone
THEIRS = tuple(kind for kind in CASES if kind not in ("cogvlm2", "mimovl", "nemotron_v2_vl"))


def size_of(kind: str) -> tuple[int, int]:
    """Return the width and height of the picture whose rows are compared."""
    size: tuple[int, int] = CASES.get(kind, {}).get("picture", SIZE)
    return size


def write_folder(folder: Path, kind: str) -> Path:
    """Write a case's checkpoint."""
    case = CASES[kind]
    write_checkpoint(folder, case["config"], case["shapes"], "bpe")
    (folder / "preprocessor_config.json").write_text(json.dumps(case["processor"]))
    return folder


def _keys(kind: str) -> dict[str, Any]:
    return KEYS | {"block_count": BLOCKS[kind]} | OTHER_KEYS.get(kind, {})


def old_metadata(kind: str) -> dict[str, Any]:
    """Return the metadata of a file without a conversion."""
    keys = {f"clip.vision.{key}": value for key, value in _keys(kind).items()}
    return {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.use_gelu": kind == "adapter",
        **keys,
    }
