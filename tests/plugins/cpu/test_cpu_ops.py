"""Every operation of the CPU backend against the NumPy backend, with one thread and with two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operation_tests import Check, OperationTests, compare, f32, rng
from pumice.graph import GraphBuilder, Tensor


class TestOperations(OperationTests):
    def test_norms_with_one_weight_a_head(self, check: Check) -> None:
        check(lambda g, a: g.rms_norm(a["x"], g.weight("w"), 1e-6), {"x": f32(3, 2, 20)}, {"w": f32(2, 1)}, 5e-6)


FLOATS: dict[str, Any] = {"f32": np.float32, "f16": np.float16}


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize("n_tokens", [1, 2, 13])
def test_float_experts(tmp_path: Path, backends: Any, type: str, n_tokens: int) -> None:
    x, ids = f32(n_tokens, 32), rng.permuted(np.tile(np.arange(5, dtype=np.int32), (n_tokens, 1)), axis=1)[:, :3]
    weights = {"up": f32(5, 48, 32).astype(FLOATS[type]), "down": f32(5, 18, 48).astype(FLOATS[type])}
    compare(tmp_path, backends, _experts, {"x": x, "ids": np.ascontiguousarray(ids)}, weights)


def _experts(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
    return g.mul_mat_id(g.mul_mat_id(a["x"], g.weight("up"), a["ids"]), g.weight("down"), a["ids"])


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize(("n_tokens", "width"), [(1, 48), (2, 48), (13, 48), (1, 8), (13, 8), (5, 41)])
def test_float_matrices_by_head(tmp_path: Path, backends: Any, type: str, n_tokens: int, width: int) -> None:
    weights = {"w": f32(3, 21, width).astype(FLOATS[type])}
    x = f32(n_tokens, 3, width)
    compare(tmp_path, backends, lambda g, a: g.batched_linear(a["x"], g.weight("w")), {"x": x}, weights)
