"""Checkpoints in the shape that llama.cpp's converter knows, where other tests' tiny ones have another."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vision_formulas
import vision_models
from checkpoints import write_checkpoint

FIXTURE = Path(__file__).parent / "fixtures" / "converter_variants.json"
N, FF, TEXT, LAYERS, PATCH = 32, 48, 64, 4, 8
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
#: Keys that it does not write, and those of sound.
MORE = ("min_pixels", "max_pixels", "preproc_", "attention.head_dim", ".audio.", "has_audio")
#: Keys whose values are those of published models in its code, and tensors that it resizes in other rounding.
FIXED = {"lfm2vl": {"clip.vision.image_size"}, "nemotron_v2_vl": {"clip.vision.block_count", "v.position_embd.weight"}}


def lfm2vl(folder: Path) -> None:
    """Patches of 16 pixels, and the names of published files."""
    shapes = copy.deepcopy(vision_models.CASES["lfm2vl"]["shapes"])
    for name, shape in shapes.items():
        if "patch_embedding.weight" in name:
            shapes[name] = [shape[0], 3 * 16**2]
    renamed = {name.replace("vision_tower.", "vision_tower.vision_model."): shape for name, shape in shapes.items()}
    vision_models.write_folder(folder, "lfm2vl", renamed)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["patch_size"] = 16
    (folder / "config.json").write_text(json.dumps(config))


def nemotron_v2_vl(folder: Path) -> None:
    vision_formulas.write_folder(folder, "nemotron_v2_vl")


def mimovl(folder: Path) -> None:
    """With the parts of sound without which it stops."""
    vision_formulas.write_folder(folder, "mimovl")
    config = json.loads((folder / "config.json").read_text())
    config["audio_config"] = {"input_local_layers": 1, "group_size": 1, "audio_channels": 1}
    (folder / "config.json").write_text(json.dumps(config))
    sound = folder / "audio_tokenizer"
    sound.mkdir()
    keys = {"d_model": N, "encoder_ffn_dim": FF, "encoder_attention_heads": 2, "n_mels": 128, "encoder_layers": 1}
    (sound / "config.json").write_text(json.dumps({**keys, "encoder_attn_window_size": [4, 4]}))
    tensor = {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}
    header = json.dumps({"encoder.quantizer.vq.layers.0._codebook.embed": tensor}).encode()
    (sound / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))


def internvl_chat(folder: Path) -> None:
    """Class and names of the authors' own code."""
    embeddings = "vision_model.embeddings."
    shapes: dict[str, tuple[int, ...]] = {
        f"{embeddings}class_embedding": (1, 1, N),
        f"{embeddings}patch_embedding.weight": (N, 3, PATCH, PATCH),
        f"{embeddings}patch_embedding.bias": (N,),
        f"{embeddings}position_embedding": (1, 17, N),
    }
    matrices = {"attn.qkv": (3 * N, N), "attn.proj": (N, N), "mlp.fc1": (FF, N), "mlp.fc2": (N, FF)}
    for i in range(LAYERS):
        layer = f"vision_model.encoder.layers.{i}."
        shapes |= {f"{layer}{name}.weight": shape for name, shape in matrices.items()}
        shapes |= {f"{layer}{name}.bias": shape[:1] for name, shape in matrices.items()}
        vectors = ("ls1", "ls2", "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias")
        shapes |= {layer + name: (N,) for name in vectors}
    shapes |= {"mlp1.0.weight": (4 * N,), "mlp1.0.bias": (4 * N,)}
    for i, width in ((1, 4 * N), (3, TEXT)):
        shapes |= {f"mlp1.{i}.weight": (TEXT, width), f"mlp1.{i}.bias": (TEXT,)}
    text = vision_models.CASES["internvl"]["shapes"]
    shapes |= {name: tuple(shape) for name, shape in text.items() if name.startswith("language_model")}
    write_checkpoint(folder, _internvl_config(), shapes, "bpe")
    processor = {"crop_size": 32, "size": 32, "resample": 3, "image_mean": MEAN, "image_std": STD}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def _internvl_config() -> dict[str, Any]:
    vision = {
        "architectures": ["InternVisionModel"],
        "model_type": "intern_vit_6b",
        "hidden_size": N,
        "intermediate_size": FF,
        "num_attention_heads": 2,
        "num_hidden_layers": LAYERS,
        "patch_size": PATCH,
        "image_size": 32,
        "qkv_bias": True,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "norm_type": "layer_norm",
        "qk_normalization": False,
    }
    sizes = {"downsample_ratio": 0.5, "min_dynamic_patch": 1, "max_dynamic_patch": 12, "force_image_size": 32}
    text = vision_models.CASES["internvl"]["config"]["text_config"]
    names = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat"}
    return {**names, **sizes, "select_layer": -1, "ps_version": "v2", "llm_config": text, "vision_config": vision}


VARIANTS: dict[str, Callable[[Path], None]] = {
    "lfm2vl": lfm2vl, "nemotron_v2_vl": nemotron_v2_vl, "mimovl": mimovl, "internvl_chat": internvl_chat,
}  # fmt: skip
