"""Kernels are used only where their results are right, and the log says why one is not."""

import logging
import math

import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from pumice_mlx import pick_kernel
from pumice_mlx.kernel_checks import is_right


def raising() -> float:
    raise RuntimeError("no compiler")


def test_the_log_says_why_a_kernel_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pumice")
    for error in (lambda: 0.5, lambda: 0.75, lambda: math.nan, raising):
        assert is_right("adds", error, 0.5) == (not caplog.messages)
    wrong = "mlx: the kernel that adds is not used, since its results are wrong by"
    assert caplog.messages == [f"{wrong} 7.5e-01", f"{wrong} nan", "mlx: no kernel adds: no compiler"]


def test_a_kernel_that_selects_other_tokens_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    results = mx.zeros((2, 11), mx.int32), mx.zeros((2,), mx.int32)
    monkeypatch.setattr(pick_kernel, "is_available", lambda: True)
    monkeypatch.setattr(pick_kernel, "choose", lambda *args: results)
    assert not pick_kernel.works.__wrapped__()
