"""Copies of a model that are broken in one way each, with what a check has to say about it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.check import Finding
from pumice.gguf import GGMLType, GGUFFile
from pumice.gguf.copy import encoded_metadata
from pumice.gguf.values import EncodedValue, encode
from pumice.gguf.writer import TensorInfo, Writer


@dataclass
class Contents:
    """A model taken apart: encoded metadata, and for each tensor type, shape and bytes ``[..., bytes per row]``."""

    file: GGUFFile
    metadata: dict[str, EncodedValue]
    tensors: dict[str, tuple[GGMLType, tuple[int, ...], NDArray[np.uint8]]]
    keep: float = 1.0
    """Share of the file's bytes that are written."""

    @property
    def architecture(self) -> str:
        return self.file.architecture

    def set(self, key: str, value: Any, type: str | None = None) -> None:
        self.metadata[key.replace("*", self.architecture)] = encode(value, type)

    def template(self, change: Callable[[str], str]) -> None:
        old = self.file.metadata["tokenizer.chat_template"]
        new = change(old)
        assert new != old
        self.set("tokenizer.chat_template", new)

    def change(self, pattern: str, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> None:
        """Replace the bytes of tensors."""
        names = [name for name in self.tensors if re.fullmatch(pattern, name)]
        assert names, pattern
        for name in names:
            type, shape, data = self.tensors[name]
            self.tensors[name] = type, shape, change(data.copy())


@dataclass(frozen=True)
class Breakage:
    """A way to break a model.

    Attributes:
        change: changes the contents.
        subject, message: patterns of the finding that names it.
        runs: True if only a run of the model can tell.
    """

    change: Callable[[Contents], None]
    subject: str
    message: str = ""
    runs: bool = False

    def named_by(self, finding: Finding) -> bool:
        is_wrong = finding.level != "note"
        return is_wrong and bool(re.search(self.subject, finding.subject) and re.search(self.message, finding.message))


def write_broken(source: Path, out: Path, breakage: Breakage) -> Path:
    with GGUFFile.open(source) as file:
        tensors = {name: (tensor.type, tensor.shape, tensor.data) for name, tensor in file.tensors.items()}
        contents = Contents(file, dict(encoded_metadata(file.metadata)), tensors)
        breakage.change(contents)
        infos = [TensorInfo(name, type, shape) for name, (type, shape, _) in contents.tensors.items()]
        with Writer(out, contents.metadata, infos, force=True) as writer:
            for _, _, data in contents.tensors.values():
                writer.write(data)
    if contents.keep < 1:
        with out.open("r+b") as stream:
            stream.truncate(int(out.stat().st_size * contents.keep))
    return out


def _permuted(contents: Contents) -> None:
    """Put the rows of each head in the order of the other kind of rotary positions."""
    heads = contents.file.metadata[f"{contents.architecture}.attention.head_count"]
    size = contents.file.metadata[f"{contents.architecture}.embedding_length"] // heads
    order = np.arange(size).reshape(size // 2, 2).T.reshape(-1)
    contents.change(
        r"blk\.\d+\.attn_[qk]\.weight",
        lambda data: data.reshape(-1, size, data.shape[-1])[:, order].reshape(data.shape),
    )


def _float16s(columns: slice, value: float) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    """Set float16 numbers at the beginning of the first block of rows."""

    def change(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        data.view(np.float16)[columns, 0] = value
        return data

    return change


def _scaled(factor: float, size: Callable[[GGMLType], int]) -> Callable[[Contents], None]:
    def change(contents: Contents) -> None:
        name = "blk.2.ffn_up.weight"
        type, shape, data = contents.tensors[name]
        blocks = data.copy().reshape(-1, size(type))
        n_scales = 2 if type is GGMLType.Q4_1 else 1
        scales = blocks[:, : 2 * n_scales].copy().view(np.float16) * np.float16(factor)
        blocks[:, : 2 * n_scales] = scales.view(np.uint8)
        contents.tensors[name] = type, shape, blocks.reshape(data.shape)

    return change


def _noise(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shuffle rows: the numbers stay, and mean nothing."""
    return data[np.random.default_rng(0).permutation(len(data))]


def _block_bytes(type: GGMLType) -> int:
    from pumice.gguf import type_size

    return type_size(type)


def _copied(contents: Contents) -> None:
    for name in list(contents.tensors):
        if name.startswith("blk.3."):
            contents.tensors[name] = contents.tensors[name.replace("blk.3.", "blk.2.")]


def _swapped(contents: Contents) -> None:
    gate, up = "blk.3.ffn_gate.weight", "blk.3.ffn_up.weight"
    contents.tensors[gate], contents.tensors[up] = contents.tensors[up], contents.tensors[gate]


def _zero_rows(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    data[::3] = 0
    return data


def _merges(contents: Contents) -> None:
    merges = contents.file.metadata["tokenizer.ggml.merges"]
    contents.set("tokenizer.ggml.merges", merges[: len(merges) // 2])


def _all_normal(contents: Contents) -> None:
    contents.set("tokenizer.ggml.token_type", np.ones(len(contents.file.metadata["tokenizer.ggml.tokens"]), np.int32))


def _marks(text: str) -> str:
    return text.replace("<|im_start|>", "<|begin_header|>")


def _set(key: str, value: Any, type: str | None = None) -> Callable[[Contents], None]:
    return lambda contents: contents.set(key, value, type)


def _template(change: Callable[[str], str]) -> Callable[[Contents], None]:
    return lambda contents: contents.template(change)


def _tensor(pattern: str, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> Callable[[Contents], None]:
    return lambda contents: contents.change(pattern, change)


def _dropped(name: str) -> Callable[[Contents], None]:
    return lambda contents: contents.tensors.pop(name) and None


def _cut(contents: Contents) -> None:
    contents.keep = 0.9


def _fewer_layers(contents: Contents) -> None:
    contents.set("*.block_count", contents.file.metadata[f"{contents.architecture}.block_count"] - 1)


def _more_heads(contents: Contents) -> None:
    contents.set("*.attention.head_count", 2 * contents.file.metadata[f"{contents.architecture}.attention.head_count"])


def _rope_base(contents: Contents) -> None:
    contents.set("*.rope.freq_base", contents.file.metadata[f"{contents.architecture}.rope.freq_base"] / 10)


ON_CHATML: Mapping[str, Breakage] = {
    "wrong end token": Breakage(_set("tokenizer.ggml.eos_token_id", 0), "eos_token_id", "<|im_end|>"),
    "template cut": Breakage(_template(lambda text: text[:-30]), "chat template", "Jinja"),
    "template without system": Breakage(
        _template(lambda text: "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}" + text),
        "chat template", "system",
    ),
    "template of the last message": Breakage(
        _template(lambda text: "{% set messages = messages[-1:] %}" + text), "chat template", "leaves out",
    ),
    "template without end": Breakage(
        _template(
            lambda text: text.replace("message['content'] + '<|im_end|>'", "message['content'] + '<|im_start|>'"),
        ),
        "chat template", "ends an answer",
    ),
    "template of other marks": Breakage(_template(_marks), "chat template", "vocabulary does not have"),
    "template without generation prompt": Breakage(
        _template(lambda text: text.replace("{% if add_generation_prompt %}", "{% if false %}")), "chat template",
        "add_generation_prompt",
    ),
    "tokens of type normal": Breakage(_all_normal, "token_type", "special token"),
}  # fmt: skip
"""Breakages of models with a ChatML template whose marks are tokens."""

ON_ANY: Mapping[str, Breakage] = {
    "heads permuted": Breakage(_permuted, "attn_q", "order", runs=True),
    "rope base": Breakage(_rope_base, "rope.freq_base", "predicted better", runs=True),
    "rope scaling": Breakage(_set("*.rope.scaling.factor", 8.0), "rope.scaling.factor", "without scaling", runs=True),
    "half of a head rotated": Breakage(
        _set("*.rope.dimension_count", 32), "rope.dimension_count", "predicted better", runs=True
    ),
    "rows shuffled": Breakage(_tensor(r"blk\.2\.ffn_down\.weight", _noise), r"blk\.2$", "without", runs=True),
    "gate and up swapped": Breakage(_swapped, r"blk\.3\.ffn_gate", "swapped"),
    "ordinary end token": Breakage(_set("tokenizer.ggml.eos_token_id", 500), "eos_token_id", "ordinary"),
    "no pre-tokenizer": Breakage(lambda contents: contents.metadata.pop("tokenizer.ggml.pre") and None, "ggml.pre"),
    "half of the merges": Breakage(_merges, "vocabulary", "not found in their own texts"),
    "norm epsilon": Breakage(_set("*.attention.layer_norm_rms_epsilon", 0.1), "epsilon", "published"),
    "context length": Breakage(_set("*.context_length", 1), "context_length", "published"),
    "fewer layers": Breakage(_fewer_layers, "architecture", "has no use for"),
    "more heads": Breakage(_more_heads, "architecture", "shape|rope"),
    "tensor missing": Breakage(_dropped("blk.1.ffn_up.weight"), "architecture", "missing"),
    "file cut": Breakage(_cut, "file", "bytes"),
    "layer of zeros": Breakage(_tensor(r"blk\.1\.ffn_.*", np.zeros_like), r"blk\.1\.ffn", "zero"),
    "scales of nothing": Breakage(_tensor(r"blk\.1\.attn_v\.weight", _zero_rows), r"blk\.1\.attn_v", "zero"),
    "NaN in a norm": Breakage(
        _tensor(r"blk\.1\.attn_norm\.weight", lambda data: np.full(data.size // 4, np.nan, np.float32).view(np.uint8)),
        r"blk\.1\.attn_norm",
        "nan",
    ),
    "infinite scale": Breakage(
        _tensor(r"blk\.1\.attn_q\.weight", _float16s(slice(5, 6), np.inf)), r"blk\.1\.attn_q", "inf|nan"
    ),
    "scale too large": Breakage(_scaled(16, _block_bytes), r"blk\.2\.ffn_up", "of size"),
    "layer copied": Breakage(_copied, r"blk\.3", "copy"),
}
"""Breakages of any llama model with byte-level BPE."""
