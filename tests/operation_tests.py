"""Tests of single operations, which each backend's tests run with backends of its own beside the NumPy backend.

A subclass has ``backends`` as a fixture: all of them are to give the very same bits.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import Case, Graphed, batch, limits
from pumice.backend import Backend
from pumice.graph import ELEMENTWISE, GraphBuilder, Tensor
from pumice.plugin.nn import Rope
from pumice_numpy import NumpyBackend

Build = Callable[[GraphBuilder, Mapping[str, Tensor]], Tensor]
Check = Callable[..., None]
rng = np.random.default_rng(5)
each_set = pytest.mark.every_instruction_set


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def compare(
    folder: Path,
    backends: Sequence[Backend],
    build: Build,
    activations: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray] | None = None,
    tolerance: float = 2e-6,
) -> None:
    """One step of a small graph: near to NumPy's result on the first backend, and on the others the very same."""
    n_tokens = len(next(iter(activations.values())))
    case = Case(build, activations, weights or {})
    expected, first, *others = (
        Graphed(folder, backend, case, limits())(activations, batch([n_tokens]))
        for backend in (NumpyBackend(), *backends)
    )
    assert first.dtype == expected.dtype
    np.testing.assert_allclose(first, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))
    for other in others:
        np.testing.assert_array_equal(other, first)


PLAIN = [name for name, each in ELEMENTWISE.items() if len(each.operands) == 1 and not each.attributes]
SCALINGS: list[dict[str, Any]] = [
    {},
    {"freq_scale": 0.25, "attn_factor": 1.5},
    {"freq_scale": 0.25, "ext_factor": 1.0, "n_ctx_orig": 64},
]  # of Rope

widths = st.sampled_from([1, 2, 5, 10, 16, 33, 37, 64, 100, 2100, 4100]) | st.integers(1, 300)
shapes = st.tuples(st.integers(1, 20), widths) | st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 80))


@st.composite
def broadcast(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and one of an operand that broadcasts to it: dimensions of one, and leading ones left out."""
    shape = (draw(st.integers(2, 5)), *draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    other = [n if draw(st.booleans()) else 1 for n in shape]
    return shape, tuple(other[draw(st.integers(0, len(other) - 1)) :])


@st.composite
def routings(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Numbers of experts, of chosen ones, of groups, of chosen groups."""
    n_group = draw(st.sampled_from([1, 1, 2, 3, 8]))
    n_group_used = draw(st.integers(1, n_group))
    size = draw(st.integers(2 if n_group > 1 else 1, 130 // n_group))
    return n_group * size, draw(st.integers(1, min(20, n_group_used * size))), n_group, n_group_used


class OperationTests:
    #: Of functions made of exponentials.
    function_tolerance = 2e-6

    @pytest.fixture
    def check(self, tmp_path: Path, backends: Sequence[Backend]) -> Check:
        """``compare`` with the backends under test."""
        return partial(compare, tmp_path, backends)

    @given(n=st.integers(1, 5), count=st.integers(1, 4), power=st.integers(5, 9))
    def test_hadamard(self, check: Check, n: int, count: int, power: int) -> None:
        check(lambda g, a: g.hadamard(a["x"], 2**power), {"x": f32(n, 2**power * count)})

    @each_set
    @given(op=st.sampled_from([*PLAIN, "softmax"]), shape=shapes)
    def test_functions(self, check: Check, op: str, shape: tuple[int, ...]) -> None:
        x = f32(*shape) * 4
        x.flat[: min(x.size, 8)] = [-80, -20, -1e-3, 0, 0.4999, 0.5, 20, 80][: x.size]
        check(lambda g, a: getattr(g, op)(a["x"]), {"x": x}, tolerance=self.function_tolerance)

    @given(shape=shapes, factor=st.floats(-3, 3), low=st.floats(-2, 0), high=st.floats(0, 2))
    def test_constants(self, check: Check, shape: tuple[int, ...], factor: float, low: float, high: float) -> None:
        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            return g.clamp(g.clamp(g.scale(a["x"], factor, 0.25), low, float("inf")), float("-inf"), high)

        check(build, {"x": f32(*shape)})

    @given(op=st.sampled_from(["add", "mul", "div"]), both=broadcast())
    def test_arithmetic_broadcasts(self, check: Check, op: str, both: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        shape, other = both
        x, y = f32(*shape), np.abs(f32(*other)) + 0.5
        if len(other) == len(shape) and other[0] == shape[0]:
            check(lambda g, a: getattr(g, op)(a["x"], a["y"]), {"x": x, "y": y})
        else:
            check(lambda g, a: getattr(g, op)(a["x"], g.weight("y")), {"x": x}, {"y": y})

    @pytest.mark.parametrize("op", ["silu", "gelu"])
    def test_gates(self, check: Check, op: str) -> None:
        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            gate = getattr(g, op)
            twice = gate(a["y"])  # read twice: it must be computed for itself
            return gate(a["x"]) * a["y"] + a["y"] * gate(a["y"]) + twice * a["x"] + twice

        check(build, {"x": f32(3, 40), "y": f32(3, 40)})

    @given(shape=shapes, rank=st.integers(0, 2))
    def test_norms(self, check: Check, shape: tuple[int, ...], rank: int) -> None:
        x, weight = f32(*shape) * 3 + 1, shape[1:][-rank:] if rank else ()
        weights = {"w": f32(*weight), "b": f32(*weight)} if weight else {}

        def both(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            w, b = (g.weight(name) if weights else None for name in "wb")
            return g.rms_norm(g.layer_norm(a["x"], w, b, 1e-3), w, 1e-3)

        check(both, {"x": x}, weights, 1e-5)

    @given(
        n=st.integers(1, 9),
        heads=st.integers(1, 4),
        pairs=st.integers(1, 40),
        rest=st.integers(0, 9),
        neox=st.booleans(),
        scaling=st.sampled_from(SCALINGS),
    )
    def test_rope(
        self, check: Check, n: int, heads: int, pairs: int, rest: int, neox: bool, scaling: dict[str, Any]
    ) -> None:
        n_rot = 2 * pairs
        x, factors = f32(n, heads, n_rot + 2 * rest), np.abs(f32(pairs)) + 0.5
        positions = rng.integers(0, 200_000, n).astype(np.int32)

        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            plain = Rope(n_rot, neox, freq_base=10000.0, **scaling)
            x = a["x"]
            for rope in (dataclasses.replace(plain, factors=g.weight("factors")), plain, plain):
                x = g.rope(x, a["at"], freqs=rope.freqs, neox=neox, magnitude=rope.magnitude)
            return x

        check(build, {"x": x, "at": positions}, {"factors": factors})

    def test_rope_of_several_axes(self, check: Check) -> None:
        positions = rng.integers(0, 2000, (7, 3)).astype(np.int32)

        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            at = g.input("at", ("n_tokens", 3), "i32")
            return g.rope(a["x"], at, freqs=(1.0, 0.5, 0.1, 0.01), neox=True, axes=(0, 2, 1, 1))

        check(build, {"x": f32(7, 2, 10), "at": positions})

    def test_position_scale(self, check: Check) -> None:
        check(lambda g, a: g.position_scale(g.positions, 4, 0.1), {"x": f32(19, 1)})
        check(lambda g, a: g.position_scale(g.positions, 4, 0.1, offset=3), {"x": f32(19, 1)})

    def test_position_scale_after_others(self, check: Check) -> None:
        """Its place may be that of a value before it."""

        def late(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            x = g.silu(g.gelu(g.silu(a["x"]) * 3.0))
            return x * g.position_scale(g.positions, 4, 0.5).reshape("n_tokens", 1)

        check(late, {"x": f32(19, 8)})

    def test_rows(self, check: Check) -> None:
        ids = np.array([3, 0, 8, 3, 8], np.int32)
        table, values, x = f32(9, 20), f32(9), f32(5, 3, 7)
        check(lambda g, a: g.embedding(g.weight("w"), a["ids"]), {"ids": ids}, {"w": table})
        check(lambda g, a: g.embedding(g.weight("w"), a["ids"]), {"ids": ids}, {"w": values})
        pairs = {"ids": ids.repeat(2).reshape(5, 2)}
        check(lambda g, a: g.embedding(g.weight("w"), a["ids"]), pairs, {"w": table})
        check(lambda g, a: g.embedding(g.weight("w"), a["ids"]), pairs, {"w": values})
        some = np.array([4, 0, 0, 1, 2], np.int32)
        check(lambda g, a: g.get_rows(a["x"], a["ids"]), {"ids": some, "x": x})

    @given(shape=shapes, data=st.data())
    def test_the_largest(self, check: Check, shape: tuple[int, ...], data: st.DataObject) -> None:
        k = data.draw(st.integers(1, min(200, shape[-1])))
        x = np.round(f32(*shape) * 2)  # many are equal
        check(lambda g, a: g.top_k(a["x"], k), {"x": x})
        check(lambda g, a: g.gather(a["x"], g.top_k(a["x"], k)), {"x": x})

    @given(
        numbers=routings(),
        gate=st.sampled_from(["softmax", "sigmoid", "softmax_of_chosen", "sqrt_softplus"]),
        biased=st.booleans(),
        options=st.fixed_dictionaries({"normalize": st.booleans(), "scale": st.sampled_from([0.5, 1.0, 2.5])}),
    )
    def test_routing(
        self, check: Check, numbers: tuple[int, ...], gate: str, biased: bool, options: dict[str, Any]
    ) -> None:
        n_expert, n_used, n_group, n_group_used = numbers

        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            bias = g.weight("bias") if biased else None
            groups = {"n_group": n_group, "n_group_used": n_group_used}
            ids = g.expert_ids(a["x"], bias, n_used=n_used, gate=gate, **groups)
            weights = g.expert_weights(a["x"], ids, gate=gate, **options)
            others = g.expert_weights(a["other"], ids, gate=gate)
            return g.concat(g.gather(a["x"], ids), g.concat(weights, others))

        logits = {"x": f32(7, n_expert) * 3, "other": f32(7, n_expert)}
        check(build, logits, {"bias": f32(n_expert)}, self.function_tolerance)

    @pytest.mark.parametrize("size", [3, 128])
    def test_remainders(self, check: Check, size: int) -> None:
        x = f32(7, 300)
        check(lambda g, a: g.gather(a["x"], g.remainder(g.top_k(a["x"], 200), size)), {"x": x})

    @pytest.mark.parametrize(("shape", "n_iterations"), [((5, 4, 4), 1), ((17, 4, 4), 20), ((3, 2, 7, 7), 3)])
    def test_balanced_matrices(self, check: Check, shape: tuple[int, ...], n_iterations: int) -> None:
        check(lambda g, a: g.sinkhorn(a["x"], n_iterations, 1e-3), {"x": f32(*shape)}, tolerance=1e-5)

    @pytest.mark.parametrize(("n_tokens", "n_heads"), [(2, 1), (3, 16), (8, 56)])
    def test_rows_of_ngrams(self, check: Check, n_tokens: int, n_heads: int) -> None:
        """By products and remainders of 64 bits, with the largest numbers there may be."""
        random = np.random.default_rng(0)
        tokens = random.integers(0, 2**24 + 1, (60, n_tokens)).astype(np.float32)
        numbers = {
            "multipliers": (2**64 - 1, *random.integers(0, 2**64, n_tokens - 1, np.uint64).tolist()),
            "sizes": (2**31, *random.integers(1, 2**30, n_heads - 1).tolist()),
            "offsets": (0, *random.integers(0, 2**30, n_heads - 1).tolist()),
        }
        for size in (97, 2**31 - 1):
            check(lambda g, a, size=size: g.remainder(g.ngram_rows(a["x"], **numbers), size), {"x": tokens})

    def test_groups_of_experts(self, check: Check) -> None:
        x = f32(7, 30)
        check(lambda g, a: g.gather(a["x"], g.quotient(g.top_k(a["x"], 5), 3)), {"x": x})

    @given(n=st.integers(1, 9), n_used=st.integers(1, 20), width=widths)
    def test_sums_of_experts(self, check: Check, n: int, n_used: int, width: int) -> None:
        y, weights = f32(n, n_used, width), f32(n, n_used)
        check(lambda g, a: g.expert_sum(a["y"], a["w"]), {"y": y, "w": weights})

    @given(shape=st.tuples(*[st.integers(1, 20)] * 4), axis=st.sampled_from([-1, -2, -3]), keepdims=st.booleans())
    def test_sums(self, check: Check, shape: tuple[int, ...], axis: int, keepdims: bool) -> None:
        check(lambda g, a: g.sum(a["x"], axis, keepdims), {"x": f32(*shape)})

    def test_slice_and_concat(self, check: Check) -> None:
        x, y = f32(3, 2, 26), f32(3, 1, 4)
        build: Build = lambda g, a: g.concat(g.slice(a["x"], 1, 23), a["y"])  # noqa: E731
        check(build, {"x": x, "y": y})
        check(lambda g, a: g.concat(a["x"], a["x"]), {"x": x})

    @pytest.mark.parametrize("width", [6, 16, 40])
    @pytest.mark.parametrize("parts", [[10], [1] * 10, [2, 1, 7]])
    def test_recurrent_operations(
        self, tmp_path: Path, backends: Sequence[Backend], parts: list[int], width: int
    ) -> None:
        """Two sequences in parts of the given lengths; begun again, a sequence forgets the one before."""
        n_state = 5
        activations = {"x": f32(10, width), "dt": np.abs(f32(10, width)), "b": f32(10, n_state), "c": f32(10, n_state)}
        weights = {"conv": f32(width, 4), "bias": f32(width), "a": -np.abs(f32(width, n_state)), "d": f32(width)}

        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            y = g.conv1d(g.conv1d(a["x"], g.weight("conv"), g.weight("bias")), g.weight("conv"), None)
            return g.ssm_scan(y, a["dt"], g.weight("a"), a["b"], a["c"], g.weight("d"))

        self.check_in_parts(tmp_path, backends, Case(build, activations, weights), parts)

    @pytest.mark.parametrize(
        ("n_taps", "parts"),
        [(20, [32]), (20, [1] * 3), (20, [2, 1, 30, 7]), (20, [25, 19]), (128, [200]), (128, [1, 150, 3, 130])],
    )
    def test_conv1d_of_many_taps(
        self, tmp_path: Path, backends: Sequence[Backend], n_taps: int, parts: list[int]
    ) -> None:
        width = 10
        weights = {"conv": f32(width, n_taps) * n_taps**-0.5, "bias": f32(width)}

        def build(g: GraphBuilder, a: Mapping[str, Tensor]) -> Tensor:
            return g.conv1d(g.silu(g.conv1d(a["x"], g.weight("conv"), g.weight("bias"))), g.weight("conv"), None)

        self.check_in_parts(tmp_path, backends, Case(build, {"x": f32(sum(parts), width)}, weights), parts)

    def check_in_parts(self, folder: Path, backends: Sequence[Backend], case: Case, parts: Sequence[int]) -> None:
        activations = case.activations
        wide = dataclasses.replace(limits(), n_ctx=512, n_batch=512, n_outputs=512)
        expected, first, *others = (Graphed(folder, backend, case, wide) for backend in (NumpyBackend(), *backends))
        for _ in range(2):
            n_past = 0
            for n in parts:
                rows = slice(n_past, n_past + n)
                both = {name: np.concatenate([v[rows], v[::-1][rows]]) for name, v in activations.items()}
                step = batch([n, n], [n_past, n_past])
                result = first(both, step)
                wanted = expected(both, step)
                np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * max(1, np.abs(wanted).max()))
                for other in others:
                    np.testing.assert_array_equal(other(both, step), result)
                n_past += n

    @pytest.mark.parametrize("parts", [[10], [1] * 10, [2, 1, 7]])
    @pytest.mark.parametrize(
        ("kind", "n_heads", "n_key_heads", "k_dim", "v_dim", "options"),
        [
            ("constant", 2, 2, 8, 16, {}),
            ("scalar", 4, 2, 16, 40, {}),
            ("scalar", 6, 2, 5, 33, {"tiled": True}),
            ("channel", 2, 2, 12, 7, {"before": True}),
            ("delta", 4, 2, 16, 24, {}),
            pytest.param("channel delta", 3, 3, 9, 64, {}, marks=each_set),
            ("rank one", 2, 2, 10, 10, {}),
        ],
    )
    def test_linear_attention(
        self,
        tmp_path: Path,
        backends: Sequence[Backend],
        parts: list[int],
        kind: str,
        n_heads: int,
        n_key_heads: int,
        k_dim: int,
        v_dim: int,
        options: dict[str, bool],
    ) -> None:
        q, k, v = f32(10, n_key_heads, k_dim), f32(10, n_key_heads, k_dim), f32(10, n_heads, v_dim)
        by_channel = "channel" in kind or kind == "rank one"
        decay = 1 / (1 + np.exp(f32(*(10, n_heads, k_dim)[: 3 if by_channel else 2])))
        activations = {"q": q, "k": k / np.linalg.norm(k, axis=-1, keepdims=True), "v": v, "decay": decay}
        if "delta" in kind:
            activations["beta"] = np.abs(f32(10, n_heads)) % 1
        if kind == "rank one":
            activations |= {"a": f32(10, n_heads, k_dim) / k_dim, "b": f32(10, n_heads, k_dim) / k_dim}
        weights = {"decay": activations.pop("decay")[0]} if kind == "constant" else {}

        def build(g: GraphBuilder, tensors: Mapping[str, Tensor]) -> Tensor:
            decay = {"decay": g.weight("decay")} if kind == "constant" else {}
            return g.linear_attention(**tensors, **decay, **options)

        self.check_in_parts(tmp_path, backends, Case(build, activations, weights), parts)

    def test_recurrent_states_are_copied(self, tmp_path: Path, backends: Sequence[Backend]) -> None:
        """A sequence goes on from a copy of its state, in another slot, as it went on itself."""
        x, weights = f32(10, 24), {"conv": f32(24, 4)}
        case = Case(
            lambda g, a: g.conv1d(g.conv1d(a["x"], g.weight("conv"), None), g.weight("conv"), None), {"x": x}, weights
        )
        for backend in (NumpyBackend(), *backends):
            graphed = Graphed(tmp_path, backend, case, limits(n_checkpoints=2))
            assert graphed.program.capabilities.copies_slots

            def step(first: int, end: int, slot: int, graphed: Graphed = graphed) -> np.ndarray:
                made = dataclasses.replace(batch([end - first], [first]), slots=np.array([slot], np.int32))
                return graphed({"x": x[first:end]}, made)

            step(0, 6, 0), step(0, 6, 1)
            graphed.program.copy_slots([(0, 5), (1, 4)])
            expected = step(6, 10, 0)
            step(0, 3, 2)
            graphed.program.copy_slots([(5, 2)])
            np.testing.assert_array_equal(step(6, 10, 2), expected)
