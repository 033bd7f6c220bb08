"""Synthetic models: every description is one that its family takes."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.published_shapes import MODELS, N_VOCAB
from tools.synthetic_model import is_matrix

from pumice.graph import ArraySource, GraphBuilder
from pumice.plugin import HParams
from pumice_architectures import ARCHITECTURES


class Nothing(ArraySource):
    """A tensor of a shape whose numbers nobody wants."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.nbytes = shape, 0

    def dequantize(self) -> NDArray[np.float32]:
        """Return ones: a graph may depend on the numbers of a vector, such as frequencies."""
        return np.ones(self.shape, np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_descriptions(name: str) -> None:
    model = MODELS[name]
    module, _, attribute = ARCHITECTURES[model.architecture].partition(":")
    family = getattr(__import__(module, fromlist=[attribute]), attribute)
    metadata = {"general.architecture": model.architecture}
    metadata |= {f"{model.architecture}.{key}": value for key, value in model.metadata.items()}
    g = GraphBuilder({name: Nothing(shape) for name, shape in model.shapes.items()}, model.metadata["block_count"], 256)
    logits = family(HParams(metadata)).build(g)
    assert logits.shape == ("n_outputs", N_VOCAB)
    n_matrix_values = sum(math.prod(s) for n, s in model.shapes.items() if is_matrix(n, s))
    assert 1e8 < n_matrix_values < 1e10
