"""Tiny vision models as transformers has them, by the cases of their fixture; see make_fixtures/README.md.

A case has a configuration, shapes of tensors, settings of processors, and what llama.cpp's converter makes of it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import N_TOKENS, write_checkpoint
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType, GGUFFile
from pumice.model_files.opening import open_model

FIXTURE = Path(__file__).parent / "fixtures" / "vision_models" / "values.npz"
CASES: dict[str, dict[str, Any]] = json.loads(FIXTURE.with_name("cases.json").read_text())
SIZE = (90, 50)  # of the picture that rows and logits are of
SIZES = ((20, 11), (201, 130))  # further ones, whose pixels are compared
# Rotations, windows, merged squares, tables of positions, and rows between rows: kinds that other backends compute.
SPANNING = ("gemma3", "qwen3vl", "internvl", "hunyuanvl", "kimik25", "lfm2vl", "llama4", "pixtral")
IMAGE, BREAK = 410, N_TOKENS  # token ids of an image's rows, and of the end of a line of them


def config_of(kind: str) -> dict[str, Any]:
    """Return a case's ``config.json``."""
    case = CASES[kind]
    return {"architectures": [case.get("published", case["class"])], "model_type": case["model_type"], **case["config"]}


def write_folder(folder: Path, kind: str, shapes: Mapping[str, Sequence[int]] | None = None) -> Path:
    """Write a case's checkpoint, with preprocessing and the token that ends a line of an image."""
    case = CASES[kind]
    tokenizer_kind = case.get("tokenizer", "bpe")
    write_checkpoint(folder, config_of(kind), shapes or case["shapes"], tokenizer_kind)
    for name, key in (("preprocessor_config", "processor"), ("video_preprocessor_config", "video_processor")):
        if key in case:
            (folder / f"{name}.json").write_text(json.dumps(case[key]))
    if tokenizer_kind != "bpe":
        return folder
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": BREAK, "content": "[IMG_BREAK]"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def converted(folder: Path, kind: str) -> Path:
    """Write a case's checkpoint, its model and its projector, and return the folder."""
    if not folder.exists():
        write_folder(folder, kind)
        for name, mmproj in (("model", False), ("mmproj", True)):
            with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=mmproj)) as file:
                write_model(file, folder / f"{name}.gguf")
    return folder


def raster(inputs: Mapping[str, Any]) -> NDArray[np.int64] | slice:
    """Return the rows of patches by row and column of an image, without the empty ones of windows over its edge."""
    if "in_window" in inputs:
        return np.argsort(inputs["place"])
    if "hidden" not in inputs:
        return slice(None)
    filled = np.flatnonzero(inputs["hidden"][:, 0, 0] == 0)
    return filled[np.lexsort(inputs["places"][filled].T[::-1])]


def described(file: Path) -> dict[str, Any]:
    """Return a file's metadata, without those of the folder's name, and types, shapes and digests of its tensors."""
    with GGUFFile.open(file) as opened:
        keys = {key: opened.metadata.get(key) for key in opened.metadata if not key.startswith("general.")}
        tensors = {
            name: [tensor.type.name, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest()[:16]]
            for name, tensor in opened.tensors.items()
        }
    values = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in keys.items()}
    return {"metadata": values, "tensors": tensors}
