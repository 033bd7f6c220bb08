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
Types = Mapping[str, tuple[str, Sequence[int] | None]]  # end of a tensor's name -> its type, and numbers
TEXTS = (  # whose ids the fixtures have
    "Making fixtures: the converter's Tokenizers and weights, of a model.",
    "the ﬁrst weights of a model",
)
ADDED = ("[gMASK]", "<|user|>", "<|observation|>", "<|startoftext|>")
ADDED_TO_DOTS = (*ADDED[:-1], "<|endofassistant|>")
PROMPT = [(7 * i + 3) % N_TOKENS for i in range(24)]
PROMPTS = (PROMPT, PROMPT[3:8], PROMPT[::-2])  # that are continued at once
N_GREEDY = 12  # tokens that follow each
ROWS = slice(2, None, 3)  # of its logits, those that are stored


def weights(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Numbers that bfloat16 holds exactly: matrices around 0, vectors around 1 for norms."""
    random = np.random.default_rng(crc32(name.encode())).standard_normal(shape)
    if name.endswith("act_fn.eps"):  # of xIELU, which is small and negative
        return np.full(shape, -(2.0**-20), np.float32)
    if not shape and name.endswith(("_min", "_max")):  # limits of Gemma 4's maps, which some values exceed
        return np.float32(-1.5 if name.endswith("_min") else 1.5) * np.ones((), np.float32)
    values = random * 0.1 + (1.0 if name.endswith(("norm.weight", "running_var")) or "layernorm" in name else 0.0)
    if name.endswith("balancing_biases"):  # transformers sets the last one whatever is stored
        values[-1] = -1.0
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def write_cases(path: Path, cases: Mapping[str, Any]) -> None:
    """Write the cases of a fixture: their configurations, shapes, and what other programs make of them."""
    path.write_text(json.dumps(cases, separators=(",", ":")).replace('},"', '},\n"') + "\n")


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float32]], types: Types | None = None) -> None:
    """A file of the format with BF16 numbers; ``types``: those of other tensors."""
    header, data = {}, bytearray()
    for name, values in tensors.items():
        dtype, given = next((each for part, each in (types or {}).items() if name.endswith(part)), ("BF16", None))
        raw = stored(name, values, dtype, given)
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def stored(name: str, values: NDArray[np.float32], dtype: str, given: Sequence[int] | None) -> bytes:
    """Numbers in a type; integers and 8-bit floats are any bits, unless they are given."""
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    if given is not None:
        return np.array(given, {"I32": "<i4", "I64": "<i8"}[dtype]).tobytes()
    if dtype in ("F16", "F32"):
        return values.astype({"F16": "<f2", "F32": "<f4"}[dtype]).tobytes()
    random = np.random.default_rng(crc32(name.encode()))
    if dtype == "F8_E8M0":
        return random.integers(118, 128, values.shape, np.uint8).tobytes()
    if dtype == "I32":
        return random.integers(-(2**31), 2**31, values.shape, np.int32).tobytes()
    limit = 120 if name.endswith("scales") else 256
    return (random.integers(100 if limit < 256 else 0, limit, values.shape, np.uint8) & 0xBF).tobytes()


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    kind: str,
    types: Types | None = None,
    modules: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
) -> Path:
    """A model's folder. kind: of its tokenizer, a folder of the fixtures; types: as `write_safetensors` has them.

    Without a configuration there is no file for it; modules: further files, with the shapes of their tensors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    for name, of_module in (modules or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_safetensors(folder / name, {each: weights(each, shape) for each, shape in of_module.items()})
    write_safetensors(
        folder / "model.safetensors", {name: weights(name, shape) for name, shape in shapes.items()}, types
    )
    write_tokenizer(folder, kind)
    return folder


def checkpoint_of(folder: Path, case: Mapping[str, Any], **values: Any) -> Path:
    """The folder of a stored case, with other values in its configuration."""
    more = case["tokenizer"], case.get("types"), case.get("modules")
    return write_checkpoint(folder, {**case["config"], **values}, case["shapes"], *more)


def write_tokenizer(folder: Path, kind: str) -> None:
    """The files of a tokenizer; ``glm``, ``dots``: ``bpe`` with tokens added; ``xlmr``: as fairseq has it."""
    if kind == "pocket":
        shutil.copy(FIXTURES / "unigram" / "spiece.model", folder / "tokenizer.model")
        return
    for path in (FIXTURES / {"glm": "bpe", "dots": "bpe", "xlmr": "unigram"}.get(kind, kind)).iterdir():
        shutil.copy(path, folder / (path.name if kind != "xlmr" else path.name.replace("spiece", "sentencepiece.bpe")))
    if kind in ("glm", "dots"):
        values = json.loads((folder / "tokenizer.json").read_text())
        plain = values["added_tokens"][0]
        added = [
            plain | {"id": N_TOKENS + i, "content": text}
            for i, text in enumerate(ADDED if kind == "glm" else ADDED_TO_DOTS)
        ]
        (folder / "tokenizer.json").write_text(json.dumps(values | {"added_tokens": values["added_tokens"] + added}))
