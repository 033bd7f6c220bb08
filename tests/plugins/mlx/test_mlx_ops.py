"""Every operation of the MLX backend against the NumPy backend."""

from __future__ import annotations

from operation_tests import OperationTests


class TestOperations(OperationTests):
    pass
