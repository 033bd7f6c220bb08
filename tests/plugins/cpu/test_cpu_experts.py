"""Products with one of several matrices for each row, against the decoded weights, row by row."""

import numpy as np
import pytest

from graphs import batch, limits
from nightly import crossed
from pumice.backend.step import Step
from pumice.gguf import GGMLType, GGUFTensor, block_size, dequantize, quantize
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph
from pumice_cpu import CpuBackend
from random_weights import RARE, random_rows

rng = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def rounded(x: np.ndarray) -> np.ndarray:
    """Return activations as int8 blocks of 32 hold them."""
    blocks = x.reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    return (np.rint(blocks * (np.float32(1) / scale)) * scale.astype(np.float64)).reshape(x.shape)


def run(threads: int, type: GGMLType, matrices: np.ndarray, x: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
    """``mul_mat_id``, or without ids ``batched_linear``."""
    shape = (*matrices.shape[:2], x.shape[-1])
    tensors = {"w": GGUFTensor("w", type, shape, 0, matrices.nbytes, matrices.tobytes())}
    g = GraphBuilder(tensors, 1, 64)
    with g.layer(0):
        given = Tensor("x", ("n_tokens", *x.shape[1:]), builder=g)
        if ids is None:
            output = g.batched_linear(given, g.weight("w"))
        else:
            chosen = Tensor("ids", ("n_tokens", ids.shape[1]), "i32", builder=g)
            output = g.mul_mat_id(given, g.weight("w"), chosen)
    backend = CpuBackend(CpuBackend.Options(threads=threads))
    program = compile_graph(backend, g.finish(output), limits())
    result = program.run(Step(batch([len(x)]), {"x": x, "ids": ids}))[output.name].copy()
    backend.close()
    return result


def check(type: GGMLType, matrices: np.ndarray, x: np.ndarray, ids: np.ndarray | None) -> None:
    one, two = (run(threads, type, matrices, x, ids) for threads in (1, 2))
    n_used = matrices.shape[0] if ids is None else ids.shape[1]
    rows = np.repeat(x[:, None], n_used, axis=1) if x.ndim == 2 else x
    rows = rows if type.name in FLOATS else rounded(rows)
    which = np.arange(n_used)[None] if ids is None else ids
    expected = np.einsum("temk,tek->tem", dequantize(matrices, type).astype(np.float64)[which], rows, optimize=True)
    np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_array_equal(one, two)


FLOATS = ["F32", "F16", "BF16"]
FORMS = ["experts", "experts of own rows", "heads"]
CASES = [
    *(pytest.param("Q4_0", form, marks=pytest.mark.every_instruction_set) for form in FORMS),
    *crossed(["Q2_0", "Q5_1", "Q8_0", "MXFP4", *FLOATS, *RARE], FORMS),
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_products(name: str, form: str) -> None:
    """Rows that are not whole tiles: what follows a matrix's last row is the next matrix's first."""
    type, n_matrices, n_rows = GGMLType[name], int(rng.integers(3, 10)), int(rng.integers(1, 140))
    width = int(rng.integers(1, 100)) if name in FLOATS else int(rng.integers(1, 4)) * max(32, block_size(type))
    matrices = random_rows(rng, name, n_matrices * n_rows, width).reshape(n_matrices, n_rows, -1)
    for n_tokens in (1, 2, 37):
        if form == "heads":
            check(type, matrices, f32(n_tokens, n_matrices, width), None)
            continue
        ids = rng.permuted(np.tile(np.arange(n_matrices, dtype=np.int32), (n_tokens, 1)), axis=1)[:, :3].copy()
        ids[ids == 1] = 2  # one is never used, another twice by some tokens
        check(type, matrices, f32(n_tokens, 3, width) if form == "experts of own rows" else f32(n_tokens, width), ids)


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
def test_an_expert_that_all_tokens_choose(name: str) -> None:
    """Its items have fewer tiles, so that threads share it."""
    ids = np.concatenate([np.full((40, 1), 2), rng.choice([0, 1, 3, 4], (40, 1))], axis=1).astype(np.int32)
    matrices = random_rows(rng, name, 5 * 200, 512).reshape(5, 200, -1)
    check(GGMLType[name], matrices, f32(40, 512), ids)


@pytest.mark.parametrize("piece", [1_000, 5_000])
def test_experts_packed_in_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller and larger than a matrix."""
    monkeypatch.setattr("pumice_cpu.packed.PIECE", piece)
    ids = rng.integers(0, 9, (4, 2), dtype=np.int32)
    check(GGMLType.Q8_0, quantize(f32(9, 50, 64), GGMLType.Q8_0), f32(4, 64), ids)
