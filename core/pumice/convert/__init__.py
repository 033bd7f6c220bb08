"""From a Hugging Face model's folder to GGUF: configuration, tokenizer and tensors, in memory until they are written.

What families do differently stands beside their architectures, in classes derived from `Conversion`.
"""

from pumice.convert.conversion import Conversion
from pumice.convert.converted import FILE_TYPES, Options, convert
from pumice.convert.folder import Folder, HFConfig
from pumice.convert.lazy import LazyTensor
from pumice.convert.output import default_name, write_model

__all__ = [
    "FILE_TYPES",
    "Conversion",
    "Folder",
    "HFConfig",
    "LazyTensor",
    "Options",
    "convert",
    "default_name",
    "write_model",
]
