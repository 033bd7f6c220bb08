"""The test kit for plugins finds what is wrong, and passes what is right."""

from dataclasses import dataclass

import numpy as np
import pytest

from gguf_files import tiny_llama
from pumice.plugin import Proposer, Sampler, hookimpl
from pumice.testing import check_architecture, check_backend, check_operation, check_proposer, check_sampler
from pumice_architectures.llama import Llama
from pumice_cpu import CpuBackend
from pumice_numpy import NumpyBackend
from pumice_samplers import SAMPLERS

x = np.random.default_rng(0).standard_normal((5, 2, 32)).astype(np.float32)


def attend(g, a):
    return g.attention(a["x"], a["x"], a["x"], scale=0.2)


def norm(g, a):
    return g.rms_norm(a["x"], g.weight("w"), 1e-5)


@pytest.mark.parametrize(("build", "kv_type"), [(norm, "f32"), (attend, "f32"), (attend, "q8_0")])
def test_a_right_operation_passes(build, kv_type):
    check_operation(CpuBackend(), build, {"x": x}, {"w": x[0, 0]}, kv_type=kv_type)


def test_a_wrong_operation_is_found(monkeypatch):
    class Wrong(NumpyBackend):
        def compile(self, segment, plan, limits):
            program = super().compile(segment, plan, limits)
            run = program.run
            program.run = lambda step: {name: y + 0.01 for name, y in run(step).items()}
            return program

    with pytest.raises(AssertionError, match="differs from NumPy's result by"):
        check_operation(Wrong(), norm, {"x": x}, {"w": x[0, 0]})


class Spoils(NumpyBackend):
    """Spoils the result of one product."""

    value = 0.1

    def compile(self, segment, plan, limits):
        program = super().compile(segment, plan, limits)
        run = program.run
        spoiled = [node.output.name for node in segment.nodes if "blk.1.ffn_up.weight" in str(node.inputs)]
        program.run = lambda step: {k: y * self.value if k in spoiled else y for k, y in run(step).items()}
        return program


class Fails(NumpyBackend):
    """Cannot compile one product."""

    def compile(self, segment, plan, limits):
        if any("blk.1.ffn_up.weight" in str(node.inputs) for node in segment.nodes):
            raise KeyError("columns")
        return super().compile(segment, plan, limits)


def test_an_operation_that_fails_is_named_with_its_backend(tmp_path):
    with pytest.raises(AssertionError, match=r"^Fails, layer 1: linear of blk\.1\.ffn_up\.weight: KeyError: 'columns'"):
        check_backend(Fails(), tiny_llama(tmp_path / "tiny.gguf", n_layer=2))


@pytest.mark.parametrize(
    ("value", "problem"), [(np.nan, "numbers that are not finite"), (1.1, "differs from NumPy's result by")]
)
def test_a_wrong_operation_of_a_model_is_named_with_its_backend(tmp_path, monkeypatch, value, problem):
    path = tiny_llama(tmp_path / "tiny.gguf", n_layer=2)
    check_backend(NumpyBackend(), path)
    check_backend(CpuBackend(), path)
    monkeypatch.setattr(Spoils, "value", value)
    with pytest.raises(AssertionError, match=rf"^Spoils, layer 1: linear of blk\.1\.ffn_up\.weight: {problem}"):
        check_backend(Spoils(), path)


class ForgetsPositions(Llama):
    """Turns queries and keys by the row of the batch."""

    def rope(self, g, i):
        rope = super().rope(g, i)
        rows = g.input("rows", ("n_tokens",), "i32", fill=lambda batch: np.arange(len(batch.positions), dtype=np.int32))
        return lambda g, x: g.rope(x, rows, freqs=rope.freqs, neox=rope.neox)


class Mine:
    @hookimpl
    def pumice_register_architectures(self, register):
        register("llama", ForgetsPositions)


def test_an_architecture_that_forgets_positions_is_found(tmp_path):
    path = tiny_llama(tmp_path / "llama.gguf")
    check_architecture(path)
    with pytest.raises(AssertionError, match="token by token the logits differ"):
        check_architecture(path, plugins=[Mine()])


@pytest.mark.parametrize("name", ["top_k", "top_p", "dist"])
def test_right_samplers_pass(name):
    check_sampler(SAMPLERS[name]())


def test_a_sampler_that_leaves_nothing_is_found():
    @dataclass
    class Nothing(Sampler):
        def apply(self, candidates):
            candidates.keep(np.zeros(len(candidates), bool))

    with pytest.raises(AssertionError, match="leaves no candidates"):
        check_sampler(Nothing())


def test_a_proposer_of_too_many_tokens_is_found():
    class Eager(Proposer):
        def propose(self, n):
            return [1] * (n + 1)

    with pytest.raises(AssertionError, match="more than"):
        check_proposer(Eager)
