"""A tiny Pocket TTS with random weights, as its authors store one: a folder without a configuration."""

import json
from pathlib import Path
from typing import Any

import numpy as np

FIXTURE = Path(__file__).parent / "fixtures" / "pocket_tts.npz"
WIDTH, N_LAYER, N_FF = 128, 2, 192
CODEC, CODEC_FF, CODEC_LAYERS = 64, 96, 2
FLOW, FLOW_BLOCKS, FREQS = 48, 2, 16
FILTERS, N_VALUES = 4, 32
LETTERS = "▁ abcdefghijklmnopqrstuvwxyzTHWSA0123456789'"
PIECES = ["<unk>", "▁", ".", "!", "...", "?", ",", ";", ":", *LETTERS[2:], "▁the", "▁The", "lo", "or", "ld"]
N_TOKENS = len(PIECES)
TEXT = "the world, hello there"
VOICE_SAMPLES = 20_000


def voice() -> np.ndarray:
    """Return samples of a voice, which becomes silent, by a formula."""
    t = np.arange(VOICE_SAMPLES) / 24_000
    loud = np.where(t < 0.6, 1.0, 0.001)
    return (loud * (0.3 * np.sin(2 * np.pi * 220 * t) + 0.2 * np.sin(2 * np.pi * 1234.5 * t + 1))).astype(np.float32)


def tensors(end_bias: float = -8.0) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint; ``end_bias`` is that of the score that ends a speech.

    Float16 holds them exactly, as kernels of convolutions are stored.
    """
    shapes = {**_language_model(), **_flow_network(), **_codec()}
    rng = np.random.default_rng(7)
    made: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if name.endswith((".norm1.weight", ".norm2.weight", "out_norm.weight", "in_ln.weight", "alpha", "emb_std")):
            made[name] = 1 + 0.1 * values
        elif ".final_layer.linear." in name:  # frames are similar: differences do not grow
            made[name] = values * np.float32(1.0 if name.endswith("bias") else 0.02)
        elif ".layer_scale" in name:
            made[name] = 0.3 + 0.05 * values
        elif name.endswith(("bias", "emb_mean")):
            made[name] = 0.1 * values
        elif name.endswith("freqs"):
            made[name] = np.exp(-np.log(10_000) * np.arange(FREQS) / FREQS).astype(np.float32)
        elif "embed.weight" in name or name.endswith(("bos_emb", "bos_before_voice")):
            made[name] = values
        elif name == "mimi.decoder.model.11.conv.weight":  # so that no sample is cut
            made[name] = 0.001 * values
        elif ".convtr." in name:
            made[name] = values * np.float32(0.5 if "upsample" in name else (0.5 * shape[0]) ** -0.5)
        else:
            made[name] = values * np.float32(np.prod(shape[1:])) ** np.float32(-0.5)
    made["flow_lm.out_eos.bias"] = np.array([end_bias], np.float32)
    return {name: values.astype(np.float16).astype(np.float32) for name, values in made.items()}


def write_pocket(folder: Path, end_bias: float = -8.0) -> Path:
    """Write a checkpoint's folder."""
    from checkpoints import write_safetensors

    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors(end_bias), {"": ("F32", None)})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder


def write_converted(folder: Path, end_bias: float = -8.0) -> Path:
    """Write the language model and its speech model beside it, as ``pumice convert`` makes them of a checkpoint."""
    from click.testing import CliRunner

    from pumice.cli import cli

    checkpoint = write_pocket(folder / "checkpoint", end_bias)
    for name, more in (("model.gguf", []), ("mmproj.gguf", ["--mmproj"])):
        arguments = ["convert", str(checkpoint), "-o", str(folder / name), "--type", "f32", *more]
        CliRunner().invoke(cli, arguments, catch_exceptions=False)
    return folder / "model.gguf"


def tokenizer() -> dict[str, Any]:
    """Return the contents of a ``tokenizer.json``, a unigram model."""
    scores = [[piece, 0.0 if piece == "<unk>" else -2.0 - 0.01 * i] for i, piece in enumerate(PIECES)]
    replace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [
            {"id": 0, "content": "<unk>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
        ],
        "pre_tokenizer": replace, "decoder": replace,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": False},
    }  # fmt: skip


def _language_model() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "conditioner.embed.weight": (N_TOKENS + 1, WIDTH), "bos_emb": (N_VALUES,), "bos_before_voice": (1, 1, WIDTH),
        "emb_mean": (N_VALUES,), "emb_std": (N_VALUES,), "input_linear.weight": (WIDTH, N_VALUES),
        "out_norm.weight": (WIDTH,), "out_norm.bias": (WIDTH,), "out_eos.weight": (1, WIDTH), "out_eos.bias": (1,),
        "speaker_proj_weight": (WIDTH, N_VALUES),
    }  # fmt: skip
    for i in range(N_LAYER):
        shapes |= _layer(f"transformer.layers.{i}.", WIDTH, N_FF)
    return {f"flow_lm.{name}": shape for name, shape in shapes.items()}


def _layer(name: str, n: int, n_ff: int) -> dict[str, tuple[int, ...]]:
    norms = {f"{name}norm{i}.{part}": (n,) for i in (1, 2) for part in ("weight", "bias")}
    return norms | {
        f"{name}self_attn.in_proj.weight": (3 * n, n), f"{name}self_attn.out_proj.weight": (n, n),
        f"{name}linear1.weight": (n_ff, n), f"{name}linear2.weight": (n, n_ff),
    }  # fmt: skip


def _flow_network() -> dict[str, tuple[int, ...]]:
    def linear(name: str, n_out: int, n_in: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}

    shapes = linear("input_proj", FLOW, N_VALUES) | linear("cond_embed", FLOW, WIDTH)
    shapes |= linear("final_layer.linear", N_VALUES, FLOW) | linear("final_layer.adaLN_modulation.1", 2 * FLOW, FLOW)
    for i in range(2):
        name = f"time_embed.{i}."
        shapes |= {f"{name}freqs": (FREQS,), f"{name}mlp.3.alpha": (FLOW,)}
        shapes |= linear(f"{name}mlp.0", FLOW, 2 * FREQS) | linear(f"{name}mlp.2", FLOW, FLOW)
    for i in range(FLOW_BLOCKS):
        name = f"res_blocks.{i}."
        shapes |= {f"{name}in_ln.weight": (FLOW,), f"{name}in_ln.bias": (FLOW,)}
        shapes |= linear(f"{name}mlp.0", FLOW, FLOW) | linear(f"{name}mlp.2", FLOW, FLOW)
        shapes |= linear(f"{name}adaLN_modulation.1", 3 * FLOW, FLOW)
    return {f"flow_lm.flow_net.{name}": shape for name, shape in shapes.items()}


def _codec() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "quantizer.output_proj.weight": (CODEC, N_VALUES, 1), "upsample.convtr.convtr.weight": (CODEC, 1, 32),
        "downsample.conv.conv.weight": (N_VALUES, CODEC, 32),
    }  # fmt: skip
    for side in ("encoder", "decoder"):
        for i in range(CODEC_LAYERS):
            name = f"{side}_transformer.transformer.layers.{i}."
            shapes |= _layer(name, CODEC, CODEC_FF)
            shapes |= {f"{name}layer_scale_{i}.scale": (CODEC,) for i in (1, 2)}
    return {f"mimi.{name}": shape for name, shape in {**shapes, **_convolutions()}.items()}


def _convolutions() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}

    def conv(name: str, n_out: int, n_in: int, n_taps: int, kind: str = "conv") -> None:
        size = (n_out, n_in, n_taps) if kind == "conv" else (n_in, n_out, n_taps)
        shapes.update({f"{name}.{kind}.weight": size, f"{name}.{kind}.bias": (n_out,)})

    n = FILTERS
    conv("encoder.model.0", n, 1, 7)
    for i, ratio in enumerate((4, 5, 6)):
        conv(f"encoder.model.{1 + 3 * i}.block.1", n // 2, n, 3)
        conv(f"encoder.model.{1 + 3 * i}.block.3", n, n // 2, 1)
        conv(f"encoder.model.{3 + 3 * i}", 2 * n, n, 2 * ratio)
        n *= 2
    conv("encoder.model.11", CODEC, n, 3)
    conv("decoder.model.0", n, CODEC, 7)
    for i, ratio in enumerate((6, 5, 4)):
        conv(f"decoder.model.{2 + 3 * i}", n // 2, n, 2 * ratio, "convtr")
        n //= 2
        conv(f"decoder.model.{3 + 3 * i}.block.1", n // 2, n, 3)
        conv(f"decoder.model.{3 + 3 * i}.block.3", n, n // 2, 1)
    conv("decoder.model.11", 1, n, 3)
    return shapes
