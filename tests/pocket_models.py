"""A tiny Pocket TTS with random weights, as its authors store one: a folder without a configuration."""

import json
from pathlib import Path

import numpy as np

FIXTURE = Path(__file__).parent / "fixtures" / "pocket_tts.npz"
STORED = json.loads((Path(__file__).parent / "fixtures" / "speech_models.json").read_text())["pocket"]
WIDTH, N_LAYER, N_FF = 128, 2, 192
CODEC, CODEC_FF, CODEC_LAYERS = 64, 96, 2
FLOW, FLOW_BLOCKS, FREQS = 48, 2, 16
FILTERS, N_VALUES = 4, 32
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
    rng = np.random.default_rng(7)
    made: dict[str, np.ndarray] = {}
    for name, shape in STORED["shapes"].items():
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
    (folder / "tokenizer.json").write_text(json.dumps(STORED["tokenizer"]))
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
