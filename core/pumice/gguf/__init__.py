"""The GGUF file format: reading and writing files, and turning quantized tensors into numbers.

Names that need the `gguf` package are imported when first used: a file's metadata is readable without it.
"""

from typing import TYPE_CHECKING, Any

from pumice.gguf.metadata import Metadata
from pumice.gguf.quants import dequantize, quantize
from pumice.gguf.reader import GGUFFile
from pumice.gguf.tensors import GGUFTensor
from pumice.gguf.values import Encoded, encode
from pumice.gguf.writer import TensorInfo, Writer

if TYPE_CHECKING:
    from pumice.gguf.types import GGMLType, block_size, row_bytes, type_size

__all__ = [
    "Encoded",
    "GGMLType",
    "GGUFFile",
    "GGUFTensor",
    "Metadata",
    "TensorInfo",
    "Writer",
    "block_size",
    "dequantize",
    "encode",
    "quantize",
    "row_bytes",
    "type_size",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pumice.gguf import types

        return getattr(types, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
