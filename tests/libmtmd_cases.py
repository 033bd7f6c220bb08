"""The projectors and pictures whose rows are compared with libmtmd's; see make_fixtures/libmtmd.py."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minicpmv_files
import vision_formulas
import vision_models
from checkpoints import weights, write_checkpoint
from gguf_files import write_gguf
from pumice.config import load_config
from pumice.convert import ConvertOptions, write_model
from pumice.engine.projector import Projector
from pumice.gguf import GGMLType, GGUFFile
from pumice.media_encoder import Embeddings
from pumice.model_files.opening import open_model
from pumice.registry import get_registry
from vision_files import picture, write_projector
from vision_formulas import N

FIXTURE = Path(__file__).parent / "fixtures" / "libmtmd.npz"
DOCS = Path(__file__).parents[1] / "docs" / "media.md"
FILES = ("idefics3", "mlp", "minicpmv")  # of vision_files and minicpmv_files
#: Types whose file here libmtmd cannot read or encode, and why.
NOT_RUN = {
    "gemma3nv": "knows 16 x 16 rows alone",
    "hunyuanvl": "aborts: it counts other rows than it makes",
}
_KINDS = (*FILES, *vision_formulas.OLD, *vision_formulas.CASES, *vision_models.CASES)
_ABORTING = ("gemma3n", "hunyuanvl")
ALL = tuple(kind for kind in _KINDS if kind not in _ABORTING)
#: Sides of the pictures, which both scale alike; 64 pixels for others.
SIDES = {"gemma4": 96, "gemma4unified": 96, "qwen25vl": 128, "exaone45": 128}
#: Keys of files with other values than in the vision tests: llama.cpp knows windows of 112 pixels alone.
KEYS = {kind: {"clip.vision.window_size": 112} for kind in ("qwen25vl", "exaone45")} | {
    "step3vl": {"clip.vision.image_size": 728, "clip.vision.patch_size": 14}
}
OLD_KEYS = {kind: {"clip.vision.image_size": 336, "clip.vision.patch_size": 14} for kind in ("ldp", "ldpv2")}
#: Fewest and most tokens, as options of libmtmd, which reads them from no file of these types.
LIMITS = {"gemma4": (1, 70), "gemma4unified": (1, 70), "lfm2vl": (1, 16)}
#: Between two stored rows, which are larger; rows have a last value here that chooses experts.
MARKED = ("cogvlm",)
BREAKS = ("pixtral", "mistral3")  # whose ends of lines are rows in libmtmd, and tokens here
BUCKETS = 4900  # rows of MiniCPM-V's table of positions
#: Shapes of the sizes that llama.cpp's code has.
FULL = {
    **{kind: {"v.patch_embd.weight": (N, 3, 14, 14), "v.position_embd.weight": (577, N)} for kind in ("ldp", "ldpv2")},
    "step3vl": {"vision_model.conv1.weight": (N, 3, 14, 14), "vision_model.positional_embedding": (2704, N)},
    "minicpmv46": {"model.vision_tower.embeddings.position_embedding.weight": (BUCKETS, 32)},
    "deepseekocr": {
        **vision_formulas._sam(3, 16, 14, 64, 16, N),
        "model.vision_model.embeddings.position_embedding.weight": (257, N),
    },
    "deepseekocr2": {
        **vision_formulas._sam(3, 16, 14, 64, 16, N),
        "model.qwen2_model.query_768.weight": (144, N),
        "model.qwen2_model.query_1024.weight": (256, N),
    },
}


def write_file(folder: Path, kind: str) -> Path:
    """Write the projector of a case."""
    path = folder / "mmproj.gguf"
    if kind == "minicpmv":
        return _write_minicpmv(path)
    if kind in FILES:
        return write_projector(path, kind)
    if kind in vision_formulas.OLD:
        shapes = {**vision_formulas.OLD[kind], **FULL.get(kind, {})}
        return write_gguf(path, vision_formulas.old_metadata(kind) | OLD_KEYS.get(kind, {}), _old_tensors(shapes))
    if kind in vision_formulas.CASES:
        vision_formulas.write_folder(folder / kind, kind)
        case = vision_formulas.CASES[kind]
        if kind in FULL:
            write_checkpoint(folder / kind, case["config"], {**case["shapes"], **FULL[kind]}, "bpe")
    else:
        shapes = json.loads(vision_models.SHAPES.read_text())[kind]["shapes"] | FULL.get(kind, {})
        vision_models.write_folder(folder / kind, kind, shapes)
    with open_model(folder / kind, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, path)
    return write_gguf(path, *_changed(path, KEYS[kind])) if kind in KEYS else path


def _old_tensors(shapes: vision_formulas.Shapes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file, those of convolutions of each value alone in float16, as libmtmd needs them."""
    alone = re.compile(r"\.dw\.weight|\.peg\.0\.weight|block\.0\.0\.weight")
    tensors = {name: weights(name, shape) for name, shape in shapes.items()}
    return {name: x.astype(np.float16) if alone.search(name) else x for name, x in tensors.items()}


def _write_minicpmv(path: Path) -> Path:
    """Write MiniCPM-V with a table of positions of the published size, and another one that is not used."""
    table = np.asarray(weights("v.position_embd.weight", (BUCKETS, minicpmv_files.N_EMBD)), np.float32)
    unused = np.zeros((BUCKETS, minicpmv_files.WIDTH), np.float32)
    metadata, tensors = _changed(minicpmv_files.write_minicpmv(path), {"clip.minicpmv_version": np.int32(3)})
    return write_gguf(path, metadata, tensors | {"v.position_embd.weight": table, "resampler.pos_embed_k": unused})


def _changed(path: Path, keys: dict[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """Return metadata with other values of ``keys``, and the tensors of a file."""
    with GGUFFile.open(path) as file:
        metadata = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in file.metadata.items()}
        return metadata | keys, {name: tensor.dequantize().copy() for name, tensor in file.tensors.items()}


def picture_of(kind: str) -> NDArray[np.uint8]:
    """Return the picture of a case."""
    side = SIDES.get(kind, 64)
    pixels: NDArray[np.uint8] = picture(side, side)
    return pixels


def our_rows(projector: Path, kind: str) -> NDArray[np.float32]:
    """Return the rows of a case's picture: on the NumPy backend, of large encoders on the CPU backend."""
    config = load_config(overrides={"backend": "cpu" if kind in FULL else "numpy"})
    opened = Projector(projector, config, get_registry(config))
    rows = [part.rows for part in opened.encode(picture_of(kind)) if isinstance(part, Embeddings)]
    opened.close()
    joined = np.concatenate(rows)
    return joined[1:-1, :-1] if kind in MARKED else joined


def without_breaks(kind: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return libmtmd's rows of a square without those that end lines, or begin and end it."""
    if kind in MARKED:
        return rows[1:-1]
    if kind not in BREAKS:
        return rows
    side = round(math.sqrt(len(rows) + 1.25) - 0.5)
    return rows[np.arange(len(rows)) % (side + 1) < side]


def projector_type(path: Path) -> str:
    """Return a projector's type."""
    with GGUFFile.open(path) as file:
        metadata = file.metadata
        return str(metadata.get("clip.projector_type") or metadata["clip.vision.projector_type"])


def difference(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Return the largest difference as a share of the largest value; infinity for other numbers of rows."""
    if ours.shape != theirs.shape:
        return math.inf
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def rounded_up(value: float) -> str:
    """Return a difference as the table of the documentation has it, with one digit."""
    if math.isinf(value):
        return "other rows"
    power = math.floor(math.log10(value))
    digit = math.ceil(value / 10**power)
    return f"{1 if digit == 10 else digit}e{power + (digit == 10)}"
