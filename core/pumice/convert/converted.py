"""Convert a folder to a GGUF model in memory; tensors are computed when they are read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pumice.convert.conversion import Conversion
from pumice.convert.folder import Folder, understood
from pumice.convert.lazy import LazyTensor
from pumice.convert.parameters import UNSCALED, sliding_layers
from pumice.convert.vocabulary import vocabulary
from pumice.convert.vocabulary.chats import chat_keys
from pumice.convert.written import general_metadata, reading
from pumice.errors import ConvertError, GGUFError
from pumice.gguf import EncodedValue, GGMLType, GGUFFile, Metadata, dequantize, encode, row_bytes
from pumice.gguf.metadata import make_metadata
from pumice.gguf.types import block_size

if TYPE_CHECKING:
    from pumice.quantizer import Quantizer

FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
TERNARY = (GGMLType.TQ1_0, GGMLType.TQ2_0)
FILE_TYPES = {  # general.file_type
    GGMLType.F32: 0, GGMLType.F16: 1, GGMLType.BF16: 32, GGMLType.Q8_0: 7, GGMLType.TQ1_0: 36, GGMLType.TQ2_0: 37,
}  # fmt: skip
# Matrices that ternary types would damage: names without layer and suffix.
NOT_TERNARY = {"token_embd", "per_layer_token_embd", "output", "altup_router", "laurel_l", "laurel_r"}
MXFP4_MOE = 38  # general.file_type of a model whose experts are in MXFP4
QUANTIZATION_VERSION = 2  # version of GGML's block formats
MATRICES = (".weight", ".lora_a", ".lora_b")  # suffixes of matrices' names
MAX_FLOAT16 = 65504.0
# Largest absolute value of types with float16 scales; the other types have no such limit.
LARGEST = {**dict.fromkeys((GGMLType.F16, *TERNARY), MAX_FLOAT16), GGMLType.Q8_0: 127 * MAX_FLOAT16}


logger = logging.getLogger("pumice")


@dataclass(frozen=True)
class ConvertOptions:
    """Options of a conversion.

    Attributes:
        type: type of matrices, one of FILE_TYPES; None: the checkpoint's type.
        name: name of the model, which replaces the folder's.
        metadata: JSON file with keys ``general.*`` that replace the folder's.
        vocab_only: convert the tokenizer without tensors.
        target: folder of the target model, for a draft model.
        quantizer: quantizer for ``type``, if it is a block type.
        mmproj: convert the projector of images instead of the language model.
    """

    type: GGMLType | None = None
    name: str | None = None
    metadata: Path | None = None
    vocab_only: bool = False
    target: Path | None = None
    quantizer: Quantizer | None = None
    mmproj: bool = False


@dataclass(frozen=True)
class ConvertedTensor:
    """A tensor of a converted model."""

    name: str
    type: GGMLType
    lazy: LazyTensor
    quantizer: Quantizer | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lazy.shape

    @property
    def nbytes(self) -> int:
        return row_bytes(self.type, self.shape[-1]) * prod(self.shape[:-1])

    @property
    def data(self) -> NDArray[np.uint8]:
        """The tensor's bytes in a file: uint8 ``[*shape[:-1], bytes per row]``.

        Raises ConvertError if a value does not fit.
        """
        return self._encoded(self.lazy)

    def pieces(self) -> Iterator[NDArray[np.uint8]]:
        """Yield ``data`` expert by expert, so that only one expert is in memory at a time."""
        for part in self.lazy.parts or (self.lazy,):
            yield self._encoded(part)

    def _encoded(self, lazy: LazyTensor) -> NDArray[np.uint8]:
        try:
            read = lazy.read()
        except (ValueError, IndexError) as error:  # raised by NumPy, for example if scales and blocks differ in number
            raise ConvertError(f"tensor {self.name!r}: its parts do not fit together: {error}") from error
        if lazy.kind not in FLOATS:
            return read
        values = np.ascontiguousarray(read, np.float32)
        self._check(values)
        if self.type not in FLOATS and self.quantizer:
            rows = self.quantizer.quantize(values.reshape(-1, values.shape[-1]), None)
            return rows.reshape(*lazy.shape[:-1], -1)
        if self.type is GGMLType.F16:
            stored: NDArray[Any] = values.astype(np.float16)
        else:
            stored = _bfloat16(values) if self.type is GGMLType.BF16 else values
        return stored.view(np.uint8).reshape(*lazy.shape[:-1], -1)

    def _check(self, values: NDArray[np.float32]) -> None:
        least, most = values.min(initial=0.0), values.max(initial=0.0)
        if np.isnan(most):
            position = ", ".join(map(str, np.argwhere(np.isnan(values))[0]))
            raise ConvertError(f"tensor {self.name!r}: the value at [{position}] is NaN; the checkpoint is damaged")
        if max(-least, most) > LARGEST.get(self.type, np.inf):
            raise ConvertError(
                f"tensor {self.name!r} has values too large for {self.type.name}; choose --type bf16 or f32"
            )

    def dequantize(self) -> NDArray[np.float32]:
        return dequantize(self.data, self.type)

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Do nothing: no memory is held. Required by the interface of tensors in files."""


def convert(folder: Folder, conversion: Conversion, options: ConvertOptions | None = None) -> GGUFFile:
    """Convert a folder to a GGUF model whose tensors are computed when read.

    Raises:
        ConvertError: the folder cannot be converted. Errors in the values of tensors are raised when these are read.
    """
    options = options or ConvertOptions()
    lazies: dict[str, LazyTensor] = {}
    with understood(conversion.config):
        for name, tensor in () if options.vocab_only else conversion.tensors():
            if name in lazies:
                raise ConvertError(f"{folder.path}: two tensors are converted to {name!r}")
            lazies[name] = tensor
    if table := lazies.get("token_embd.weight"):
        conversion.n_rows = table.shape[0]
    type = _stored_type(lazies) if options.type is None else options.type
    tensors = {
        name: ConvertedTensor(name, _type(conversion, name, lazy, type), lazy, options.quantizer)
        for name, lazy in lazies.items()
    }
    metadata = _metadata(folder, conversion, lazies, type, options)
    if lazies and not options.mmproj:
        _check_rope(conversion, metadata, lazies)
    n_bytes = sum(tensor.nbytes for tensor in tensors.values())
    return GGUFFile(folder.path, metadata, tensors, n_bytes)


def _check_rope(conversion: Conversion, metadata: Metadata, lazies: Mapping[str, LazyTensor]) -> None:
    """Log a warning about RoPE scaling of the configuration of which nothing has been converted."""
    kind = conversion.config.whole_rope.get("rope_type")
    type = metadata.get(f"{conversion.architecture}.rope.scaling.type")
    scaled = type in ("linear", "yarn") or any(name.startswith("rope_") for name in lazies)
    if kind not in UNSCALED and not scaled:
        logger.warning(
            "%s: RoPE scaling of type %.40r is not converted; results may differ from those of the original model, "
            "mainly for long texts", conversion.config.path, kind
        )  # fmt: skip


def _stored_type(lazies: Mapping[str, LazyTensor]) -> GGMLType:
    """Return the type of the first matrix that is not float32; float16 if all are."""
    kinds = (lazy.kind for lazy in lazies.values() if len(lazy.shape) > 1)
    return next((kind for kind in kinds if kind in (GGMLType.F16, GGMLType.BF16)), GGMLType.F16)


def _type(conversion: Conversion, name: str, lazy: LazyTensor, type: GGMLType) -> GGMLType:
    if lazy.kind not in FLOATS:
        return lazy.kind
    if (forced := conversion.forced_type(name, type)) is not None:  # F32 is 0
        return forced
    base = name.removesuffix(".weight")
    short = base.split(".", 2)[-1] if base.startswith("blk.") else base
    small = len(lazy.shape) <= 1 or name.endswith("_norm.weight") or not name.endswith(MATRICES)
    if len(lazy.shape) > 1 and conversion.keeps_types and lazy.kind is not GGMLType.F16:
        return lazy.kind
    if small or short in conversion.float32:
        return GGMLType.F32
    fits = lazy.shape[-1] % block_size(type) == 0 and not (type in TERNARY and short in NOT_TERNARY)
    return type if fits else GGMLType.F16


def _metadata(
    folder: Folder, conversion: Conversion, lazies: Mapping[str, LazyTensor], type: GGMLType, options: ConvertOptions
) -> Metadata:
    architecture = conversion.architecture
    values: dict[str, Any] = {"general.architecture": architecture}
    values |= general_metadata(folder.path, architecture, lazies.items(), options.name, options.metadata)
    with understood(conversion.config):
        hyperparameters, others = conversion.metadata(), conversion.other_metadata()
    if not options.mmproj:
        _check_windows(conversion, hyperparameters)
    has_mxfp4 = any(lazy.kind is GGMLType.MXFP4 for lazy in lazies.values())
    values |= {f"{architecture}.{key}": value for key, value in hyperparameters.items()}
    values |= {
        "general.file_type": MXFP4_MOE if has_mxfp4 else FILE_TYPES[type],
        "general.quantization_version": QUANTIZATION_VERSION,
    }
    with reading(folder.path):
        values |= (_tokenizer(conversion) if conversion.has_vocabulary else {}) | others
    return make_metadata({key: _encoded(folder, key, value) for key, value in values.items()})


def _check_windows(conversion: Conversion, hyperparameters: Mapping[str, Any]) -> None:
    """Raise ConvertError if layers have a sliding window of which nothing has been converted."""
    c = conversion.config
    is_windowed = any(sliding_layers(c)) and c.first("sliding_window") is not None
    if is_windowed and "attention.sliding_window" not in hyperparameters:
        raise ConvertError(f"{c.path}: unsupported 'layer_types': the architecture has no sliding windows")


def _encoded(folder: Folder, key: str, value: Any) -> EncodedValue:
    try:
        return encode(value, _array_type(value))
    except GGUFError as error:
        raise ConvertError(f"{folder.config.path}: {key} cannot be written: {error}") from error


def _array_type(value: Any) -> str | None:
    """Return i32[] for a list of integers, as the package ``gguf`` writes it; None otherwise."""
    integers = isinstance(value, list) and all(isinstance(item, int) for item in value)
    return "i32[]" if integers and not any(isinstance(item, bool) for item in value) else None


def _tokenizer(conversion: Conversion) -> dict[str, Any]:
    """Return the keys of the tokenizer, which for a draft model is its target's."""
    if conversion.is_draft:
        return _tokenizer(conversion.target_conversion) | conversion.target_conversion.other_metadata()
    keys = _special(conversion) | vocabulary(conversion.folder, conversion)
    return keys | chat_keys(conversion.folder, keys)


def _special(conversion: Conversion) -> dict[str, Any]:
    """Return the keys of special tokens that the family names by their text."""
    ids = conversion.added_ids
    return {
        f"tokenizer.ggml.{name}_token_id": ids[text] for name, text in conversion.special_tokens.items() if text in ids
    }


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to bfloat16, to the nearest and ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)
