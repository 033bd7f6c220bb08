"""Whole models on the CPU backend against llama.cpp's logits, and against themselves in other chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from nightly import variants
from pumice.demo import demo_model_path
from pumice_cpu import kernel
from pumice_cpu.runtime import OperationTable, ThreadPool
from reference_models import SHARED_IDS, SHARED_MODELS, error
from tiny_models import N_CTX
from tiny_zoo import CHUNKED, DAILY, LIMITS, ZOO

each_set = pytest.mark.every_instruction_set


def logits(path: Path, ids: list[int], n_batch: int = 512, **config: Any) -> NDArray[np.float32]:
    with pumice.load(path, backend="cpu", kv_type="f32", n_ctx=N_CTX, n_batch=n_batch, config=config) as model:
        assert list(model.backends) == ["cpu"], "nothing falls back to NumPy"
        return model.logits(ids)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_llama_cpp_test_models(shared: Path, name: str) -> None:
    with np.load(shared / "archs" / "expected_logits.npz") as expected:
        assert error(logits(shared / "archs" / f"{name}.gguf", SHARED_IDS), expected[name]) < 1e-4


@pytest.mark.parametrize("name", [pytest.param(name, marks=each_set) if name == "rope-plain" else name for name in ZOO])
def test_tiny_models(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    assert error(logits(tiny_file(name), ZOO[name].ids), tiny_logits[name]) < LIMITS.get(name, 1e-5)


@pytest.mark.parametrize("name", variants(ZOO, DAILY))
def test_the_number_of_threads_does_not_change_a_bit(tiny_file: Any, name: str) -> None:
    """The number of threads of a step depends on the load of the machine."""
    one, two = (logits(tiny_file(name), ZOO[name].ids[:12], cpu={"threads": threads}) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", variants(CHUNKED, [name for name in DAILY if name in CHUNKED]))
def test_batching_does_not_change_logits(tiny_file: Any, tiny_logits: Any, name: str) -> None:
    for n_batch in (1, 5):
        assert error(logits(tiny_file(name), ZOO[name].ids, n_batch), tiny_logits[name]) < LIMITS.get(name, 1e-5)


def test_a_notebook_shows_that_kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(kernel, "compile_all", lambda names: names)
    monkeypatch.setattr(kernel.sys.stderr, "isatty", lambda: False, raising=False)
    assert kernel._progress(["a"]) == ["a"]
    monkeypatch.setitem(kernel.sys.modules, "ipykernel", kernel)
    assert kernel._progress(["a"]).desc.startswith("compiling kernels")


LETTERS = {
    "norms.rms_norm": "n",
    "quantize.quantize": "q",
    "linear.matmul": "p",
    "tiles.group": "t",
    "tiles.matmul": "m",
    "rope.rotate": "r",
    "kv_cache.store": "s",
    "attention.attend": "a",
    "elementwise.binary": "e",
}


def test_threads_wait_only_for_values_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of one value, kernels of few and of many rows, and rotations of queries and keys need no barrier."""
    tables: list[list[tuple[str, dict[str, int], bool]]] = []
    run = ThreadPool.run

    def watched(pool: ThreadPool, table: OperationTable, size: int = 1) -> None:
        tables.append(table._operations)
        run(pool, table, size)

    monkeypatch.setattr(ThreadPool, "run", watched)
    ids = [i % 200 for i in range(60)]
    one, several = (
        logits(demo_model_path(), ids, cpu={"amx": "emulated", "threads": threads, "adaptive": False})
        for threads in (1, 3)
    )
    np.testing.assert_array_equal(one, several)
    layers, layer = [], ""  # a letter for each operation, a capital if it waits
    for name, _, alongside in tables[-1]:
        letter = LETTERS.get(name.split(":")[0], "?")
        layer += letter if alongside else letter.upper()
        if name.startswith("elementwise.binary:add"):
            layers.append(layer)
            layer = ""
    assert layers[2:4] == ["NQtPmpmpmRrSsAQtPmE", "NQtPmpmEQtPmE"]
