"""Importance matrices (imatrix): mean squares of the inputs of a model's matrices on some text.

They weight the errors of columns in quantization. Definitions and files are llama-imatrix's.
"""

from pumice.imatrix.collect import Collector
from pumice.imatrix.files import read_sums, write_sums
from pumice.imatrix.statistics import LayerStatistics, TensorStatistics, layer_statistics, tensor_statistics
from pumice.imatrix.sums import ActivationSums, TensorSums

__all__ = [
    "ActivationSums",
    "Collector",
    "LayerStatistics",
    "TensorStatistics",
    "TensorSums",
    "layer_statistics",
    "read_sums",
    "tensor_statistics",
    "write_sums",
]
