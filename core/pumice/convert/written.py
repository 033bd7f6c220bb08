"""Metadata that the package ``gguf`` derives from a model's folder: general keys, special tokens, chat template."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import read_json
from pumice.convert.lazy import LazyTensor
from pumice.errors import ConvertError, GGUFError
from pumice.gguf import EncodedValue, encode
from pumice.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    import gguf

_TYPES = {"STRING": "str", "ARRAY": "[]", "FLOAT": "f", "UINT": "u", "INT": "i", "BOOL": "bool"}


def entries(architecture: str, add: Callable[[gguf.GGUFWriter], None]) -> dict[str, EncodedValue]:
    """Return the metadata that ``add`` adds to the package's writer."""
    import gguf

    writer = gguf.GGUFWriter(None, architecture)
    add(writer)
    values = {key: value for part in writer.kv_data for key, value in part.items()}
    del values["general.architecture"]
    return {key: _encoded(key, value) for key, value in values.items()}


def _encoded(key: str, value: Any) -> EncodedValue:
    try:
        return encode(value.value, _type_name(value))
    except GGUFError as error:
        raise ConvertError(f"metadata key {key!r}: {error}") from None


def general_metadata(
    path: Path,
    architecture: str,
    tensors: Iterable[tuple[str, LazyTensor]],
    name: str | None = None,
    overrides: Path | None = None,
) -> dict[str, EncodedValue]:
    """Return the keys ``general.*`` from the model card, the configuration and the folder's name.

    Args:
        path: folder of the model.
        architecture: name of the architecture.
        tensors: GGUF names and tensors, which are counted.
        name: name of the model, which takes precedence over all other sources.
        overrides: JSON file whose keys take precedence over the folder's.
    """
    import gguf
    import numpy as np

    if overrides is not None:
        _check_overrides(overrides)

    def add(writer: gguf.GGUFWriter) -> None:
        for tensor_name, tensor in tensors:
            writer.add_tensor_info(tensor_name, tensor.shape, np.dtype(np.float32), 4 * tensor.size)
        total, shared, expert, n_expert = writer.get_total_parameter_count()
        about = gguf.Metadata.load(overrides, path, name, total)
        about.name = about.name or path.resolve().name
        # Metadata.load takes each key of the overrides but this one.
        about.license = gguf.Metadata.load_metadata_override(overrides).get(gguf.Keys.General.LICENSE, about.license)
        if total:
            about.size_label = about.size_label or gguf.size_label(total, shared, expert, n_expert)
        writer.add_type(gguf.GGUFType.MODEL)
        about.set_gguf_meta_model(writer)

    with reading(path):
        return entries(architecture, add)


def _check_overrides(path: Path) -> None:
    """Raise ConvertError for a file of metadata that is no JSON object, or has keys that would have no effect."""
    from gguf import Keys

    general = {key for key in vars(Keys.General).values() if isinstance(key, str) and key.startswith("general.")}
    fixed = {Keys.General.TYPE, Keys.General.ARCHITECTURE, Keys.General.QUANTIZATION_VERSION}
    fixed |= {Keys.General.ALIGNMENT, Keys.General.FILE_TYPE}
    known = {key for key in general - fixed if "{" not in key and not key.endswith(".count")}
    for key in read_json(path):
        if key not in known | {"general.base_models", "general.datasets"}:
            hint = did_you_mean(key, known)
            raise ConvertError(
                f"{path}: {key!r:.80} is no key that a conversion takes{hint}; set it by `pumice gguf set`"
            )


def special_tokens(
    path: Path, architecture: str, n_vocab: int, *, merges: bool, types: Iterable[str] | None = None
) -> dict[str, EncodedValue]:
    """Return the keys of special tokens, merges and the chat template."""
    import gguf

    logging.getLogger("gguf.vocab").setLevel(logging.ERROR)  # it warns of tokens that no model reads
    with reading(path):
        special = gguf.SpecialVocab(path, load_merges=merges, special_token_types=types, n_vocab=n_vocab)
        return entries(architecture, lambda writer: special.add_to_gguf(writer, quiet=True))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the package's errors from unexpected files into a ConvertError."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise ConvertError(f"{path}: its files are not understood: {type(error).__name__}: {error}") from error


def _type_name(value: Any) -> str:
    """Return the name of a value's type: ``u32``, ``str``, ``f32[]`` and so on."""
    import gguf

    if value.type is gguf.GGUFValueType.ARRAY:
        item = value.sub_type or gguf.GGUFValueType.get_type(value.value[0])
        return f"{_short(item.name)}[]"
    return _short(value.type.name)


def _short(name: str) -> str:
    """Return the short name of a type: ``u32`` for ``UINT32``."""
    bits = name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return _TYPES[name.removesuffix(bits)] + bits
