"""What the package ``gguf`` makes of a model's folder: general metadata, special tokens, the chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.convert.lazy import LazyTensor
from pumice.errors import ConvertError, GGUFError
from pumice.gguf import Encoded, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    import gguf

_TYPES = {"STRING": "str", "ARRAY": "[]", "FLOAT": "f", "UINT": "u", "INT": "i", "BOOL": "bool"}


def entries(architecture: str, add: Callable[[gguf.GGUFWriter], None]) -> dict[str, Encoded]:
    """The metadata that ``add`` gives to a writer of the package."""
    import gguf

    writer = gguf.GGUFWriter(None, architecture)
    add(writer)
    found = {key: value for part in writer.kv_data for key, value in part.items()}
    del found["general.architecture"]
    return {key: _encoded(key, each) for key, each in found.items()}


def _encoded(key: str, value: Any) -> Encoded:
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
) -> dict[str, Encoded]:
    """Keys ``general.*``, from the model card, the configurations and the folder's name.

    overrides: a JSON file whose keys go before them; name: the model's, which goes before all.
    """
    import gguf
    import numpy as np

    def add(writer: gguf.GGUFWriter) -> None:
        for each, tensor in tensors:
            writer.add_tensor_info(each, tensor.shape, np.dtype(np.float32), 4 * tensor.size)
        total, shared, expert, n_expert = writer.get_total_parameter_count()
        about = gguf.Metadata.load(overrides, path, name, total)
        about.name = about.name or path.resolve().name
        if total:
            about.size_label = about.size_label or gguf.size_label(total, shared, expert, n_expert)
        writer.add_type(gguf.GGUFType.MODEL)
        about.set_gguf_meta_model(writer)

    with reading(path):
        return entries(architecture, add)


def special_tokens(
    path: Path, architecture: str, n_vocab: int, *, merges: bool, types: Iterable[str] | None = None
) -> dict[str, Encoded]:
    """Which tokens begin and end a text, and the like; merges; the chat template."""
    import gguf

    with reading(path):
        special = gguf.SpecialVocab(path, load_merges=merges, special_token_types=types, n_vocab=n_vocab)
        return entries(architecture, lambda writer: special.add_to_gguf(writer, quiet=True))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What the package raises for files that are not as it expects them, as an error that says so."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, OSError) as error:
        raise ConvertError(f"{path}: its files cannot be understood: {type(error).__name__}: {error}") from error


def _type_name(value: Any) -> str:
    """``u32``, ``str``, ``f32[]``, ... for a value of the package's."""
    import gguf

    if value.type is gguf.GGUFValueType.ARRAY:
        item = value.sub_type or gguf.GGUFValueType.get_type(value.value[0])
        return f"{_short(item.name)}[]"
    return _short(value.type.name)


def _short(name: str) -> str:
    """``UINT32`` is ``u32``."""
    bits = name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return _TYPES[name.removesuffix(bits)] + bits
