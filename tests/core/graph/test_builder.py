"""Tracing: shapes are checked when an operation is added, and messages name the tensor that does not fit."""

import numpy as np
import pytest

from gguf_files import write_gguf
from graphs import builder
from pumice.errors import ModelError
from pumice.gguf import GGMLType, GGUFFile
from pumice.graph import N_TOKENS, GraphBuilder


@pytest.fixture
def g(tmp_path):
    f32 = np.float32
    weights = {
        "square": np.ones((8, 8), f32),
        "wide": np.ones((4, 16), f32),
        "experts": np.ones((3, 5, 8), f32),
        "vector": np.ones(8, f32),
        "short": np.ones(3, f32),
    }
    return builder(tmp_path, weights)


def test_missing_and_misshapen_weights_are_named(g):
    with pytest.raises(ModelError, match=r"tensor blk\.7\.x is missing"):
        g.weight("blk.7.x")
    with pytest.raises(ModelError, match=r"tensor wide has shape \[4, 16\], but the model needs \[16, 4\]"):
        g.weight("wide", (16, 4))
    assert g.find_weight("nothing") is None
    assert g.weight("wide") is g.weight("wide")


def test_dimensions_of_one_are_as_one_likes(tmp_path):
    g = builder(tmp_path, {"row": np.arange(8, dtype=np.float32), "heads": np.ones((4, 1, 1, 8), np.float32)})
    row = g.weight("row", (1, 8))
    assert (row.shape, row.data.shape, row.dequantize().tolist()) == ((1, 8), (1, 32), [list(range(8))])
    assert g.weight("row", (8, 1)).dequantize().tolist() == [[i] for i in range(8)]
    assert g.weight("row", (1, 8)) is row
    assert g.weight("row").shape == (8,)
    assert g.weight("heads", (4, 8)).shape == (4, 8)
    for shape in [(2, 4), (8, 4), (2, 2, 8), (32,), (4, 8, 2)]:
        with pytest.raises(ModelError, match="tensor heads has shape"):
            g.weight("heads", shape)


def test_blocks_are_not_spread_over_rows(tmp_path):
    blocks, types = {"row": np.zeros((2, 1, 68), np.uint8)}, {"row": GGMLType.Q8_0}
    path = write_gguf(tmp_path / "model.gguf", {"general.architecture": "test"}, blocks, types)
    g = GraphBuilder(GGUFFile.open(path).tensors, 1, 64)
    assert g.weight("row", (2, 64)).data.shape == (2, 68)
    with pytest.raises(ModelError, match="tensor row has shape"):
        g.weight("row", (2, 64, 1))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g, x: g.linear(x, g.weight("wide")), r"wide \[4, 16\] cannot multiply"),
        (lambda g, x: g.linear(x, g.weight("square"), g.weight("short")), r"short \[3\] does not fit square"),
        (lambda g, x: g.linear(x, g.weight("experts")), "experts.*two dimensions"),
        (lambda g, x: g.rms_norm(x, g.weight("short"), 1e-5), r"short \[3\] does not broadcast"),
        (lambda g, x: g.reshape(x, (N_TOKENS, 3, 3)), r"size of \[n_tokens, 3, 3\]"),
        (lambda g, x: g.slice(x, 4, 9), "slice: 4:9 is outside"),
        (lambda g, x: g.top_k(x, 9), "top_k: cannot take 9"),
        (
            lambda g, x: g.rope(x.reshape(N_TOKENS, 2, 4), g.positions, freqs=(1.0, 0.5, 0.1), neox=True),
            "6 values of a head are to turn",
        ),
        (
            lambda g, x: g.attention(*(t.reshape(N_TOKENS, n, 8 // n) for t, n in ((x, 2), (x, 4), (x, 4))), scale=1.0),
            "queries .* need heads of the keys' size",
        ),
        (lambda g, x: g.mul_mat_id(x, g.weight("square"), g.top_k(x, 2)), "square.*experts"),
        (lambda g, x: x + g.weight("short"), "short.*broadcast"),
    ],
)
def test_operands_that_do_not_fit_are_refused_by_name(g, build, message):
    x = g.embedding(g.weight("square"), g.tokens)
    with pytest.raises(ModelError, match=message):
        build(g, x)


def test_rows_of_a_weight_are_a_view_of_the_file(g):
    part = g.weight("square").rows(2, 5)
    assert part.shape == (3, 8)
    assert part.rows(1, 2).first_row == 3
    assert np.shares_memory(part.data, g.weight("square").source.data)
