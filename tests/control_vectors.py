"""Control vectors for tiny models: random directions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from pumice.gguf import GGMLType, TensorInfo, Writer
from tiny_models import TinyModel

ONLY_FEED_FORWARD = ("deci", "nemotron_h", "nemotron_h_moe")
"""Where llama.cpp adds nothing to layers without a feed-forward block: their directions are 0 here."""


PAIRS = [
    ("Once upon a time there was a very happy girl who", "Once upon a time there was a very sad girl who"),
    ("The dog was happy and played all day. He said", "The dog was sad and cried all night. He said"),
    ("Tom felt great joy.\\nHe ran", "Tom felt great pain.\\nHe fell down"),
]
"""Prompts for the demo model, as lines of files: with escapes."""


def write_pairs(folder: Path, pairs: Sequence[tuple[str, str]] = PAIRS) -> list[str]:
    """Two files of prompts, and the options of a command that name them."""
    options = []
    for name, lines in zip(("positive", "negative"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.txt").write_text("\n\n".join(lines) + "\n")
        options += [f"--{name}-file", str(folder / f"{name}.txt")]
    return options


def directions(model: TinyModel, seed: int = 0) -> np.ndarray:
    """``[layers that run but the first, n_embd]``."""
    n_layer = model.metadata["block_count"] * model.metadata.get("num_loops", 1)
    n_layer -= model.metadata.get("nextn_predict_layers", 0)
    shape = n_layer - 1, model.metadata["embedding_length"]
    found = np.random.default_rng([seed, crc32(model.architecture.encode())]).standard_normal(shape) * 0.5
    if model.architecture in ONLY_FEED_FORWARD:
        found *= np.array(model.metadata["feed_forward_length"][1:], bool)[:, None]
    return found


def write_control_vector(path: Path, values: Sequence[np.ndarray] | Mapping[str, np.ndarray], **metadata: Any) -> Path:
    """A file of the directions of layers 1, 2, ...; or of tensors by name."""
    tensors = values if isinstance(values, Mapping) else {f"direction.{i + 1}": each for i, each in enumerate(values)}
    keys = {"general.architecture": "controlvector", "controlvector.model_hint": "any", **metadata}
    infos = [TensorInfo(name, GGMLType.F32, array.shape) for name, array in tensors.items()]
    with Writer(path, keys, infos) as writer:
        for array in tensors.values():
            writer.write(array.astype(np.float32))
    return path
