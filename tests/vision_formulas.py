"""Tiny vision encoders beside formulas of their authors; see make_fixtures/README.md.

Checkpoints have the names of the published ones. Types of the oldest files have no conversion, and their tensors the
names of these files.
"""

import json
from pathlib import Path
from typing import Any

from checkpoints import write_checkpoint

FIXTURE = Path(__file__).parent / "fixtures" / "vision_formulas" / "values.npz"
FILES: dict[str, dict[str, Any]] = json.loads(FIXTURE.with_name("cases.json").read_text())
CASES = {kind: case for kind, case in FILES.items() if "config" in case}
OLD = {kind: case["shapes"] for kind, case in FILES.items() if kind not in CASES}  # which have no conversion
SIZE = (90, 50)  # of the picture whose rows are compared
SIZES = ((20, 11), (201, 130), SIZE)  # of those whose pixels are compared
N, FF, TEXT = 32, 48, 64  # width of an encoder, of its feed-forward, and of the language model
YASA_WIDTHS, YASA_DEPTHS = (16, 24), (1, 2)  # of the stages of ConvNeXt V2
CONVERTED = ("kimivl", "smolvlm")  # whose rows are compared elsewhere
#: Keys ``clip.vision.*`` of the oldest files.
KEYS: dict[str, Any] = {
    "image_size": 64, "patch_size": 8, "embedding_length": N, "feed_forward_length": FF, "attention.head_count": 2,
    "attention.layer_norm_epsilon": 1e-5, "projection_dim": TEXT, "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}  # fmt: skip
BLOCKS = {"ldp": 3, "ldpv2": 3, "adapter": 2, "yasa2": 0}
OTHER_KEYS = {"yasa2": {"image_size": 128, "patch_size": 4, "attention.layer_norm_epsilon": 1e-6}}


def size_of(kind: str) -> tuple[int, int]:
    """Return the width and height of the picture whose rows are compared."""
    width, height = FILES[kind].get("picture", SIZE)
    return width, height


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
