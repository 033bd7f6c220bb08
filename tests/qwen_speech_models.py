"""A tiny Qwen3-TTS with random weights, as its authors store one: a folder with the codec's in a folder of its own."""

import json
from pathlib import Path

import numpy as np

FIXTURE = Path(__file__).parent / "fixtures" / "qwen_speech.npz"
STORED = json.loads((Path(__file__).parent / "fixtures" / "speech_models.json").read_text())["qwen"]
TEXT = "hello there, a world"


def voice() -> np.ndarray:
    """Return samples of a voice by a formula."""
    t = np.arange(20_000) / 24_000
    return (0.3 * np.sin(2 * np.pi * 220 * t) + 0.2 * np.sin(2 * np.pi * (900 + 300 * t) * t + 1)).astype(np.float32)


def model_tensors() -> dict[str, np.ndarray]:
    """Return the tensors of the language model, the predictor of codes and the encoder of voices."""
    made = _random(STORED["model"], 3)
    end = STORED["config"]["talker_config"]["codec_eos_token_id"]
    made["talker.codec_head.weight"][end] *= np.float32(1.5)  # so that a speech ends
    return made


def codec_tensors() -> dict[str, np.ndarray]:
    """Return the tensors of the codec's decoder."""
    made = _random(STORED["codec"], 5)
    for name in made:  # so that samples are not cut
        if name.endswith("conv2.conv.weight"):
            made[name] *= np.float32(0.125)
    made["decoder.6.conv.weight"] *= np.float32(2**-6)
    return {f"decoder.{name}": values for name, values in made.items()}


def write_qwen(folder: Path) -> Path:
    """Write a checkpoint's folder."""
    from checkpoints import write_safetensors

    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    exact = {"": ("F32", None)}
    write_safetensors(folder / "model.safetensors", model_tensors(), exact)
    write_safetensors(folder / "speech_tokenizer" / "model.safetensors", codec_tensors(), exact)
    (folder / "config.json").write_text(json.dumps(STORED["config"]))
    (folder / "speech_tokenizer" / "config.json").write_text(json.dumps({"decoder_config": STORED["codec_config"]}))
    (folder / "tokenizer.json").write_text(json.dumps(STORED["tokenizer"]))
    return folder


def write_converted(folder: Path) -> Path:
    """Write the language model and its speech model beside it, as ``pumice convert`` makes them of a checkpoint."""
    from click.testing import CliRunner

    from pumice.cli import cli

    checkpoint = write_qwen(folder / "checkpoint")
    for file, more in (("model.gguf", []), ("mmproj.gguf", ["--mmproj"])):
        arguments = ["convert", str(checkpoint), "-o", str(folder / file), "--type", "f32", *more]
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert not result.exit_code, result.output
    return folder / "model.gguf"


def _random(shapes: dict[str, list[int]], seed: int) -> dict[str, np.ndarray]:
    """Return random tensors that float16 holds exactly, as kernels of convolutions are stored."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if name.endswith(("norm.weight", "layernorm.weight")):
            values = 1 + 0.1 * values
        elif name.endswith(("scale", "gamma")):
            values = 0.3 + 0.05 * values
        elif name.endswith("usage"):
            values = np.exp2(np.rint(values))
        elif name.endswith(("bias", "alpha", "beta")):
            values = 0.1 * values
        elif not name.endswith(("_sum", "embedding.weight")) and "codec_embedding" not in name:
            fan = shape[0] if _is_transposed(name) else np.prod(shape[1:])
            values *= np.float32(fan) ** np.float32(-0.5)
        made[name] = values.astype(np.float16).astype(np.float32)
    return made


def _is_transposed(name: str) -> bool:
    return ".block.1.conv." in name or (name.startswith("upsample.") and ".0.conv." in name)
