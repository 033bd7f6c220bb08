"""The projectors and pictures whose rows are compared with libmtmd's; see make_fixtures/README.md."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import minicpmv_files
import vision_formulas
import vision_models
from checkpoints import weights, write_checkpoint
from gguf_files import write_gguf
from pumice.config import load_config
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.engine.media.projector import Projector
from pumice.gguf import GGMLType, GGUFFile
from pumice.graph import N_TOKENS, GraphBuilder, Tensor
from pumice.media_encoder import ImagePiece
from pumice.model_files.opening import open_model
from pumice.registry import get_registry
from pumice_architectures.vision.mobilevlm import LDP
from vision_files import picture, write_projector
from vision_formulas import N

FIXTURE = Path(__file__).parent / "fixtures" / "libmtmd.npz"
DOCS = Path(__file__).parents[1] / "docs" / "media_types.md"
FILES = ("idefics3", "mlp", "minicpmv")  # of vision_files and minicpmv_files
_KINDS = (*FILES, *vision_formulas.OLD, *vision_formulas.CASES, *vision_models.CASES)
_ABORTING = ("cogvlm2", "gemma3n", "hunyuanvl")
ALL = tuple(kind for kind in _KINDS if kind not in (*_ABORTING, "mistrallarge4"))  # whose projector is mistral3's
#: Sides of the pictures, which both scale alike; 64 pixels for others.
SIDES = {"gemma4": 96, "gemma4unified": 96, "qwen25vl": 128, "exaone45": 128}
#: Keys of files with other values than in the vision tests: llama.cpp knows windows of 112 pixels alone.
KEYS = {kind: {"clip.vision.window_size": 112} for kind in ("qwen25vl", "exaone45")} | {
    "step3vl": {"clip.vision.image_size": 728, "clip.vision.patch_size": 14}
}
OLD_KEYS = {kind: {"clip.vision.image_size": 336, "clip.vision.patch_size": 14} for kind in ("ldp", "ldpv2")}
#: Kinds of which it takes the second patch for the first one, and so on, and the class token for the last one.
NEXT_PATCH = ("llavanext", "mlp")
SHIFTED = ("ldp", "ldpv2")  # before they are convolved: here, too, to compare them
TILED = ("granitevision", "llavanext")  # of which it has the whole last, and tiles one after the other
TILE = 4  # patches a side
#: Between two stored rows, which are larger; rows have a last value here that chooses experts.
MARKED = ("cogvlm",)
BUCKETS = 4900  # rows of MiniCPM-V's table of positions
SAM = {
    "model.sam_model.pos_embed": (1, 64, 64, 16),
    "model.sam_model.patch_embed.proj.weight": (16, 3, 16, 16),
    **{f"model.sam_model.blocks.2.attn.rel_pos_{axis}": (127, 8) for axis in "hw"},
}
#: Shapes of the sizes that llama.cpp's code has.
FULL = {
    **{kind: {"v.patch_embd.weight": (N, 3, 14, 14), "v.position_embd.weight": (577, N)} for kind in ("ldp", "ldpv2")},
    "step3vl": {"vision_model.conv1.weight": (N, 3, 14, 14), "vision_model.positional_embedding": (2704, N)},
    "minicpmv46": {"model.vision_tower.embeddings.position_embedding.weight": (BUCKETS, 32)},
    "deepseekocr": {**SAM, "model.vision_model.embeddings.position_embedding.weight": (257, N)},
    "deepseekocr2": {
        **SAM,
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
        shapes = vision_models.CASES[kind]["shapes"] | FULL.get(kind, {})
        vision_models.write_folder(folder / kind, kind, shapes)
    with open_model(folder / kind, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, path)
    return write_gguf(path, *changed_file(path, KEYS[kind])) if kind in KEYS else path


def _old_tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file, those of convolutions of each value alone in float16, as libmtmd needs them."""
    alone = re.compile(r"\.dw\.weight|\.peg\.0\.weight|block\.0\.0\.weight")
    tensors = {name: weights(name, shape) for name, shape in shapes.items()}
    return {name: x.astype(np.float16) if alone.search(name) else x for name, x in tensors.items()}


def _write_minicpmv(path: Path) -> Path:
    """Write MiniCPM-V with a table of positions of the published size, and another one that is not used."""
    table = np.asarray(weights("v.position_embd.weight", (BUCKETS, minicpmv_files.N_EMBD)), np.float32)
    unused = np.zeros((BUCKETS, minicpmv_files.WIDTH), np.float32)
    metadata, tensors = changed_file(minicpmv_files.write_minicpmv(path), {"clip.minicpmv_version": np.int32(3)})
    return write_gguf(path, metadata, tensors | {"v.position_embd.weight": table, "resampler.pos_embed_k": unused})


def changed_file(path: Path, keys: dict[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return metadata with other values of ``keys``, and the tensors of a file."""
    with GGUFFile.open(path) as file:
        metadata = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in file.metadata.items()}
        types = {
            name: np.float16 if tensor.type is GGMLType.F16 else np.float32 for name, tensor in file.tensors.items()
        }
        return metadata | keys, {name: file.tensors[name].dequantize().astype(type) for name, type in types.items()}


def picture_of(kind: str) -> NDArray[np.uint8]:
    """Return the picture of a case."""
    side = SIDES.get(kind, 64)
    pixels: NDArray[np.uint8] = picture(side, side)
    return pixels


def our_rows(projector: Path, kind: str) -> NDArray[np.float32]:
    """Return the rows of a case's picture: on the NumPy backend, of large encoders on the CPU backend."""
    config = load_config(overrides={"backend": "cpu" if kind in FULL else "numpy"})
    with shifted() if kind in SHIFTED else nullcontext():
        opened = Projector(projector, config, get_registry(config))
        rows = [part.rows for part in opened.encode(picture_of(kind)) if isinstance(part, Embeddings)]
        opened.close()
    joined = np.concatenate(rows)
    if kind in TILED:
        n = 2 * TILE
        lines = joined[TILE**2 :].reshape(n, n + 1, -1)[:, :n]
        tiles = lines.reshape(2, TILE, 2, TILE, -1).swapaxes(1, 2).reshape(n * n, -1)
        joined = np.concatenate([tiles, joined[: TILE**2]])
    if kind in NEXT_PATCH:
        joined = np.concatenate(joined.reshape(-1, TILE**2, joined.shape[1])[:, 1:])
    return joined[1:-1, :-1] if kind in MARKED else joined


@contextmanager
def shifted() -> Iterator[None]:
    """Let MobileVLM's projectors take the second patch for the first one, and the class token for the last one."""
    features, prepare = LDP.features, LDP.prepare

    def other_features(self: LDP, g: GraphBuilder) -> Tensor:
        return g.get_rows(features(self, g), g.input("shifted", (N_TOKENS,), "i32"))

    def other_inputs(self: LDP, pixels: NDArray[np.uint8]) -> list[ImagePiece]:
        (piece,) = prepare(self, pixels)
        ids = np.array([0, *range(2, self.n_rows), 0], np.int32)
        return [replace(piece, inputs={**piece.inputs, "shifted": ids})]

    with patch.multiple(LDP, features=other_features, prepare=other_inputs):
        yield


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
