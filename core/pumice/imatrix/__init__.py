"""Importance matrices (imatrix): how large what goes into each column of a model's matrices is, on some text.

It tells the quantizers how much an error in each column counts. Definitions and files are llama-imatrix's.
"""

from pumice.imatrix.collect import Collector
from pumice.imatrix.files import read_sums, write_sums
from pumice.imatrix.statistics import LayerStatistics, TensorStatistics, layer_statistics, tensor_statistics
from pumice.imatrix.sums import ActivationSums, Sums

__all__ = [
    "ActivationSums",
    "Collector",
    "LayerStatistics",
    "Sums",
    "TensorStatistics",
    "layer_statistics",
    "read_sums",
    "tensor_statistics",
    "write_sums",
]
