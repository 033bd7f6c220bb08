"""The projectors whose rows of a sound are compared with libmtmd's; see make_fixtures/README.md."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearing_models import CASES, SECONDS, sound, write_folder
from pumice.config import load_config
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.engine.media.projector import Projector
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from pumice.registry import get_registry
from pumice_architectures.hearing.mel import RATE, WINDOW, mel_filters

FIXTURE = Path(__file__).parent / "fixtures" / "libmtmd_sounds.npz"
#: Cases by projector type.
KINDS = {
    "dots3note_a": "dots3note",
    "gemma4a": "gemma4",
    "gemma4ua": "gemma4unified",
    "granite_speech": "granitespeech",
    "lfm2a": "lfm2audio",
    "meralion": "meralion",
    "mimo_audio": "mimo",
    "parakeet": "parakeet",
    "qwen3a": "qwen3asr",
}
#: Types whose file here libmtmd cannot read or encode, or of which it makes other rows on purpose.
NOT_RUN = {
    "gemma3na": "has no graph for it",
    "glma": "other rows",
    "musicflamingo": "other rows",
    "qwen2.5o": "other rows",
    "qwen2a": "other rows",
    "ultravox": "aborts with this file",
    "voxtral": "aborts with this file",
}
WIDTH, N_HEAD, N_POSITIONS = 512, 8, 400  # of LFM2-Audio's encoder, which llama.cpp's code has
FEATURES = "sound_encoder.encoder.feature_extractor.featurizer."


def shapes_of(kind: str) -> dict[str, Sequence[int]]:
    """Return the tensors of a case, for LFM2-Audio in the size that llama.cpp's code has."""
    shapes: dict[str, Sequence[int]] = CASES[kind]["shapes"]
    if kind == "parakeet":
        return shapes | {f"{FEATURES}fb": (1, 128, 257), f"{FEATURES}window": (WINDOW,)}
    if kind != "lfm2audio":
        return shapes
    small = CASES[kind]["config"]["encoder"]["d_model"]
    for name, shape in shapes.items():
        if name.startswith("conformer."):
            heads = [N_HEAD, WIDTH // N_HEAD]
            wide = [n * WIDTH // small if n in (small, 2 * small, 4 * small) else n for n in shape]
            shapes[name] = heads if "pos_bias" in name else wide
    shapes |= {f"audio_adapter.model.0.{part}": [WIDTH] for part in ("weight", "bias")}
    first, positions = "audio_adapter.model.1.weight", "audio_embedding.embedding.weight"
    return shapes | {first: [shapes[first][0], WIDTH], positions: [N_POSITIONS, shapes[positions][1]]}


def write_file(folder: Path, kind: str) -> Path:
    """Write a case's projector, and return its path."""
    case, shapes = copy.deepcopy(CASES[kind]), shapes_of(kind)
    if kind == "lfm2audio":
        CASES[kind]["config"]["encoder"] |= {"d_model": WIDTH, "n_heads": N_HEAD}
    try:
        write_folder(folder, kind, shapes)
    finally:
        CASES[kind] = case
    if kind == "parakeet":
        write_features(folder / "model.safetensors")
    path = folder / "mmproj.gguf"
    with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, path)
    return path


def write_features(path: Path) -> None:
    """Replace the filters and the window in a checkpoint's file by those of its spectrograms, in float32."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + n])
    body = data[8 + n :]
    for name, values in (("fb", mel_filters(128, RATE, 512).T[None]), ("window", np.hanning(WINDOW))):
        raw = values.astype("<f4").tobytes()
        header[FEATURES + name] |= {"dtype": "F32", "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def sound_of(rate: int) -> NDArray[np.float32]:
    """Return the sound, with noise for MiMo: logarithms of quiet bins follow the rounding of llama.cpp's transform."""
    samples = sound(SECONDS, rate)
    noise = np.random.default_rng(0).standard_normal(len(samples)) * (0.02 if rate != RATE else 0.0)
    return (samples + noise).astype(np.float32)


def of_same_codes(
    name: str, ours: NDArray[np.float32], theirs: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the rows of a type; MiMo's only where codes are the same, which float16 changes in others."""
    if name != "mimo_audio":
        return ours, theirs
    same = np.abs(ours - theirs).max(1) <= 0.01 * np.abs(theirs).max()
    assert np.count_nonzero(same) >= len(same) // 3
    return ours[same], theirs[same]


def our_rows(path: Path) -> NDArray[np.float32]:
    """Return a projector's rows of the sound."""
    config = load_config(overrides={"backend": "numpy"})
    projector = Projector(path, config, get_registry(config))
    parts = projector.encode(sound_of(projector.sound_rate), kind="audio")
    projector.close()
    rows = np.concatenate([part.rows for part in parts if isinstance(part, Embeddings)])
    rows = rows[:-1] if projector.sound_rate != RATE else rows  # whose last group is filled otherwise
    return rows[:, : projector.encoders["audio"].width]
