"""Folders as transformers saves models, small and with random weights that a tensor's name decides."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

FIXTURES = Path(__file__).parent / "fixtures" / "conversions"
N_TOKENS = 420  # of the tokenizers there
ADDED = ("[gMASK]", "<|user|>", "<|observation|>", "<|startoftext|>")
PROMPT = [(7 * i + 3) % N_TOKENS for i in range(24)]
ROWS = slice(2, None, 3)  # of its logits, those that are stored


def weights(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Numbers that bfloat16 holds exactly: matrices around 0, vectors around 1 for norms."""
    random = np.random.default_rng(crc32(name.encode())).standard_normal(shape)
    if name.endswith("act_fn.eps"):  # of xIELU, which is small and negative
        return np.full(shape, -(2.0**-20), np.float32)
    values = random * 0.1 + (1.0 if name.endswith("norm.weight") or "layernorm" in name else 0.0)
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float32]]) -> None:
    """A file of the format with BF16 numbers."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_checkpoint(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], kind: str) -> Path:
    """A model's folder. kind: of its tokenizer, ``bpe`` or ``spm``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", {name: weights(name, shape) for name, shape in shapes.items()})
    write_tokenizer(folder, kind)
    return folder


def write_tokenizer(folder: Path, kind: str) -> None:
    """The files of a tokenizer; ``glm``: that of ``bpe`` with tokens added."""
    for path in (FIXTURES / ("bpe" if kind == "glm" else kind)).iterdir():
        shutil.copy(path, folder)
    if kind == "glm":
        values = json.loads((folder / "tokenizer.json").read_text())
        plain = values["added_tokens"][0]
        added = [plain | {"id": N_TOKENS + i, "content": text} for i, text in enumerate(ADDED)]
        (folder / "tokenizer.json").write_text(json.dumps(values | {"added_tokens": values["added_tokens"] + added}))
