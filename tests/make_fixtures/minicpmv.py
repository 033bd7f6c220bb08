"""Write ``minicpmv.npz``: what transformers and torch make of pictures with the weights of tests/minicpmv_files.py.

Pixels are those of the processor of MiniCPM-V 4.6, which cuts images as earlier ones do, the encoder is that of Idefics
2, whose positions are those of MiniCPM-V, and the resampler is torch's attention, as in the authors' own code.

It needs torch, transformers and Pillow.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import Idefics2VisionConfig
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

sys.path.insert(0, str(Path(__file__).parents[1]))

from minicpmv_files import FIXTURE, N_EMBD, N_FF, N_LAYER, PATCH, PICTURES, SIDE, SIZE, WIDTH, tensors
from vision_files import picture

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down", "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.position_embedding": "v.position_embd", "post_layernorm": "v.post_ln",
}  # fmt: skip
TENSORS = {name: torch.tensor(values) for name, values in tensors().items()}


def named(name):
    stem, _, kind = name.rpartition(".")
    if stem.startswith("encoder.layers."):
        _, _, number, rest = stem.split(".", 3)
        return f"v.blk.{number}.{NAMES[rest]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def encoder():
    config = Idefics2VisionConfig(
        hidden_size=N_EMBD,
        intermediate_size=N_FF,
        num_hidden_layers=N_LAYER,
        num_attention_heads=4,
        image_size=SIDE * PATCH,
        patch_size=PATCH,
        attn_implementation="eager",
    )
    model = Idefics2VisionTransformer(config)
    model.load_state_dict({name: TENSORS[named(name)] for name in model.state_dict()})
    return model.eval()


def normed(x, name):
    return torch.nn.functional.layer_norm(x, (WIDTH,), TENSORS[f"{name}.weight"], TENSORS[f"{name}.bias"], 1e-6)


def positions(rows, columns):
    """Return sines and cosines ``[rows * columns, WIDTH]``, those of columns first."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    freqs = 10000.0 ** (-torch.arange(WIDTH // 4, dtype=torch.float64) / (WIDTH // 4))
    angles = [where.reshape(-1, 1) * freqs for where in (x, y)]
    return torch.cat([f(angle) for angle in angles for f in (torch.sin, torch.cos)], 1).float()


def resampled(x, rows, columns):
    attention = torch.nn.MultiheadAttention(WIDTH, WIDTH // 128)
    parts = [f"resampler.attn.{name}" for name in "qkv"]
    state = {f"in_proj_{kind}": torch.cat([TENSORS[f"{name}.{kind}"] for name in parts]) for kind in ("weight", "bias")}
    state |= {f"out_proj.{kind}": TENSORS[f"resampler.attn.out.{kind}"] for kind in ("weight", "bias")}
    attention.load_state_dict(state)
    v = normed(x @ TENSORS["resampler.kv.weight"].T, "resampler.ln_kv")
    q = normed(TENSORS["resampler.query"], "resampler.ln_q")
    y, _ = attention.eval()(q, v + positions(rows, columns), v)
    return normed(y, "resampler.ln_post") @ TENSORS["resampler.proj.weight"].T


@torch.no_grad()
def make():
    # With half of the patch size its merged squares are patches.
    processor = MiniCPMV4_6ImageProcessorPil(patch_size=PATCH // 2, scale_resolution=SIZE, downsample_mode="4x")
    model, half = encoder(), PATCH // 2
    for size in PICTURES:
        name = "{}x{}".format(*size)
        made = processor(Image.fromarray(picture(*size)), return_tensors="np")
        at, rows = 0, []
        for i, (height, width) in enumerate(made["target_sizes"]):
            flat = made["pixel_values"][0][:, :, at : at + height * width * half]
            at += height * width * half
            image = flat.reshape(3, half, height, width, half).transpose(0, 2, 1, 3, 4)
            image = image.reshape(3, height * half, width * half)
            yield f"pixels.{name}.{i}", ((image.transpose(1, 2, 0) * 0.5 + 0.5) * 255).round().astype(np.uint8)
            shown = torch.ones(1, height // 2, width // 2, dtype=torch.bool)
            x = model(torch.tensor(image)[None].float(), shown).last_hidden_state[0]
            rows.append(resampled(x, height // 2, width // 2).numpy())
        if size == PICTURES[0]:
            yield f"rows.{name}", np.stack(rows)


if __name__ == "__main__":
    np.savez_compressed(FIXTURE, **dict(make()))
