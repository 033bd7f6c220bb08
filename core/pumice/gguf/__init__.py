"""The GGUF file format: reading and writing files, tensor types, quantization and dequantization.

The package `gguf` is imported when values are first decoded; files can be read without it.
"""

from pumice.gguf.metadata import Metadata
from pumice.gguf.quants import dequantize, quantize
from pumice.gguf.reader import GGUFFile
from pumice.gguf.tensors import GGUFTensor, ModelTensor, TensorSource
from pumice.gguf.types import CODINGS, KV_TYPES, Coding, GGMLType, block_size, row_bytes, type_size
from pumice.gguf.values import EncodedValue, encode
from pumice.gguf.writer import TensorInfo, Writer

__all__ = [
    "CODINGS",
    "KV_TYPES",
    "Coding",
    "EncodedValue",
    "GGMLType",
    "GGUFFile",
    "GGUFTensor",
    "Metadata",
    "ModelTensor",
    "TensorInfo",
    "TensorSource",
    "Writer",
    "block_size",
    "dequantize",
    "encode",
    "quantize",
    "row_bytes",
    "type_size",
]
