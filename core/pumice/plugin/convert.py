"""The part of the contract for plugins that convert checkpoints of their model family."""

from pumice.convert.conversion import FLOAT32, KEYS, MOST_HEAD_DIM, MOST_LAYERS, QUERIES, Conversion, layer_of
from pumice.convert.folder import Folder, HFConfig
from pumice.convert.lazy import LazyTensor, concatenate, stack
from pumice.convert.names import in_layers
from pumice.convert.parameters import SIGMOID, SOFTMAX, leading_dense_layers, number, parameters, sliding_layers
from pumice.convert.pooling import pooling
from pumice.convert.projector import ProjectorConversion
from pumice.convert.quantized import mxfp4, q8_0, times_scales
from pumice.errors import ConvertError
from pumice.gguf import GGMLType

__all__ = [
    "FLOAT32",
    "KEYS",
    "MOST_HEAD_DIM",
    "MOST_LAYERS",
    "QUERIES",
    "SIGMOID",
    "SOFTMAX",
    "Conversion",
    "ConvertError",
    "Folder",
    "GGMLType",
    "HFConfig",
    "LazyTensor",
    "ProjectorConversion",
    "concatenate",
    "in_layers",
    "layer_of",
    "leading_dense_layers",
    "mxfp4",
    "number",
    "parameters",
    "pooling",
    "q8_0",
    "sliding_layers",
    "stack",
    "times_scales",
]
