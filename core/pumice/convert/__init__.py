"""Convert the folder of a Hugging Face model to GGUF: configuration, tokenizer and tensors, in memory until written.

Subclasses of `Conversion`, beside the architectures, hold the differences between model families.
"""

from pumice.convert.conversion import Conversion
from pumice.convert.converted import FILE_TYPES, ConvertOptions, convert
from pumice.convert.folder import Folder, HFConfig
from pumice.convert.lazy import LazyTensor
from pumice.convert.output import default_name, write_model

__all__ = [
    "FILE_TYPES",
    "Conversion",
    "ConvertOptions",
    "Folder",
    "HFConfig",
    "LazyTensor",
    "convert",
    "default_name",
    "write_model",
]
