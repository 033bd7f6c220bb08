"""Rows of large tables are read to the last bit as ``dequantize`` reads them."""

import numpy as np
import pytest

from graphs import batch, limits
from pumice.backend.step import Step
from pumice.gguf import CODINGS, GGMLType, GGUFTensor, dequantize
from pumice.graph import GraphBuilder
from pumice.testing import compile_graph, trace
from pumice_cpu import CpuBackend
from pumice_cpu.backend import CpuOptions
from pumice_cpu.lower import embedding
from random_weights import random_rows

each_set = pytest.mark.every_instruction_set
ON_EACH_SET = ("Q4_0", "Q8_0", "Q6_K", "IQ4_NL")
TYPES = [
    pytest.param(type.name, marks=each_set if type.name in ON_EACH_SET else ()) for type in (*CODINGS, GGMLType.IQ3_S)
]


@pytest.mark.parametrize("name", TYPES)
def test_rows_of_a_table(name, monkeypatch):
    rows = random_rows(np.random.default_rng(5), name, 40, 512)
    check_rows(rows, name, np.array([3, 39, 0, 3, 17], np.int32), monkeypatch)


@pytest.mark.parametrize("name", [pytest.param(name, marks=each_set) for name in ("F32", "F16", "BF16")])
@pytest.mark.parametrize("n_columns", [64, 21])
def test_rows_of_numbers_by_computed_ids(name, n_columns, monkeypatch):
    rows = random_rows(np.random.default_rng(5), name, 40, n_columns)
    check_rows(rows, name, np.array([[3, 39, 0], [3, 17, 38]], np.int32), monkeypatch)


def check_rows(rows, name, ids, monkeypatch):
    monkeypatch.setattr(embedding, "SMALL", 0)
    expected = dequantize(rows, GGMLType[name])
    g = GraphBuilder({"w": GGUFTensor("w", GGMLType[name], expected.shape, 0, rows.nbytes, rows.tobytes())}, 1, 64)
    output = trace(g, lambda g, given: g.embedding(g.weight("w"), given["ids"]), {"ids": ids})
    program = compile_graph(CpuBackend(CpuOptions(threads=2)), g.finish(output), limits())
    found = program.run(Step(batch([len(ids)]), {"ids": ids}))[output.name]
    np.testing.assert_array_equal(found.view(np.int32), expected[ids].view(np.int32))
