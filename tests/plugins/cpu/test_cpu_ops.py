"""Every operation of the CPU backend against the NumPy backend, with one thread and with two."""

from operation_tests import Check, OperationTests, f32


class TestOperations(OperationTests):
    def test_norms_with_one_weight_a_head(self, check: Check) -> None:
        check(lambda g, a: g.rms_norm(a["x"], g.weight("w"), 1e-6), {"x": f32(3, 2, 20)}, {"w": f32(2, 1)}, 5e-6)
