"""Every operation of the MLX backend against the NumPy backend."""

from operation_tests import OperationTests


class TestOperations(OperationTests):
    pass
