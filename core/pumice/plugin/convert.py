"""What a plugin needs to convert checkpoints of its family."""

from pumice.convert.conversion import Conversion
from pumice.convert.folder import Folder, HFConfig
from pumice.convert.lazy import LazyTensor, concatenate, stack
from pumice.convert.parameters import parameters, sliding_layers
from pumice.errors import ConvertError

__all__ = [
    "Conversion",
    "ConvertError",
    "Folder",
    "HFConfig",
    "LazyTensor",
    "concatenate",
    "parameters",
    "sliding_layers",
    "stack",
]
