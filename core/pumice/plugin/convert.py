"""The part of the contract for plugins that convert checkpoints of their model family."""

from pumice.convert.conversion import (
    FLOAT32 as FLOAT32,
    KEYS as KEYS,
    MOST_HEAD_DIM as MOST_HEAD_DIM,
    MOST_LAYERS as MOST_LAYERS,
    QUERIES as QUERIES,
    Conversion as Conversion,
    layer_of as layer_of,
)
from pumice.convert.folder import Folder as Folder, HFConfig as HFConfig
from pumice.convert.lazy import LazyTensor as LazyTensor, concatenate as concatenate, stack as stack
from pumice.convert.names import in_layers as in_layers
from pumice.convert.parameters import (
    SIGMOID as SIGMOID,
    SOFTMAX as SOFTMAX,
    leading_dense_layers as leading_dense_layers,
    number as number,
    parameters as parameters,
    sliding_layers as sliding_layers,
)
from pumice.convert.pooling import pooling as pooling
from pumice.convert.projector import ProjectorConversion as ProjectorConversion
from pumice.convert.quantized import mxfp4 as mxfp4, q8_0 as q8_0, times_scales as times_scales
from pumice.errors import ConvertError as ConvertError
from pumice.gguf import GGMLType as GGMLType
