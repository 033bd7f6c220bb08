"""Tokens in one dispatch (shaders/persistent.comp): the shader with one workgroup, and the switch to dispatches."""

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from gguf_files import tiny_llama
from llama_relatives import CAPS, GEMMA2, GEMMA3, MIXED, RELATIVES, Relative
from nightly import variants
from places import taken
from pumice.engine import Engine
from pumice.engine.requests.batches import Part, batch_of
from pumice.evaluate.speed import settle
from pumice.gguf import GGMLType
from pumice_vulkan.device import list_devices
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.persistent import PersistentPath, division
from pumice_vulkan.recorder import Recorder
from reference_models import error

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")


@pytest.fixture
def any_shape(vulkan_device: None) -> None:
    """Skip the test where tiny models take the families of GPUs."""
    if not list_devices()[0].software:
        pytest.skip("only software devices compute tiny models with the families of tests")


IDS = [(7 * i + 3) % 300 for i in range(12)]
EVERY_TYPE = {
    "output": GGMLType.Q6_K,
    "0.attn_v": GGMLType.Q4_K,
    "1.attn_v": GGMLType.Q5_K,
    "1.attn_output": GGMLType.Q3_K,
    "0.ffn_down": GGMLType.Q4_K,
    "1.ffn_down": GGMLType.Q8_0,
}
EXPERTS = {**MIXED, "0.ffn_down_exps": GGMLType.Q8_0, "1.ffn_down_exps": GGMLType.Q6_K}

MODELS = {
    "llama": Relative("llama", others=MIXED, ffn=1024),
    "types": Relative("llama", four=GGMLType.Q4_0, others=EVERY_TYPE, ffn=1024),
    "qwen2": Relative("qwen2", others=MIXED, width=768, biases=True),
    "qwen3": Relative("qwen3", others=MIXED, head_norms=True, layers=3, kv_heads=4, vocabulary=517),
    "gemma": RELATIVES["gemma"],
    "gemma2": replace(GEMMA2, width=768, keys=CAPS),
    "gemma3": replace(GEMMA3, keys={**GEMMA3.keys, "attention.sliding_window": 6}),
    "qwen3moe": Relative("qwen3moe", others=EXPERTS, head_norms=True, experts=8),
    "granitemoe": RELATIVES["granitemoe"],
}
DAILY = ["llama", "types", "qwen2", "gemma2", "qwen3moe", "granitemoe"]
KERNELS = {"types": "persistent.any_tiny_types", **dict.fromkeys(("qwen3moe", "granitemoe"), "persistent.tiny_experts")}
"""Those of models that do not have the usual one."""
USUAL = "persistent.any_tiny"


def write_model(path: Path, name: str = "llama") -> Path:
    return MODELS[name].write(path)


NOTED: list[list[Any]] = []
"""What fixtures note of the steps of a test."""


def load(path: Path, persistent: str, rows_in_one_dispatch: Any = 1, n_draft: int = 0, **options: Any) -> Any:
    section = {"persistent": persistent, "activations": "int8", "driver": "native"}
    config: dict[str, Any] = {"vulkan": {**section, "rows_in_one_dispatch": rows_in_one_dispatch}}
    if n_draft:
        config["n_draft"] = n_draft
    sizes = [len(noted) for noted in NOTED]
    model = pumice.load(path, backend="vulkan", n_ctx=256, config=config, **options)
    for noted, size in zip(NOTED, sizes, strict=True):
        del noted[size:]  # steps that the load measures
    return model


def logits(path: Path, persistent: str, ids: list[int] = IDS, n_batch: int = 1) -> NDArray[np.float32]:
    with load(path, persistent, n_batch=n_batch) as model:
        return model.logits(ids)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernel of the path, or "" where it does not work, each time that it was asked."""
    answers: list[str] = []
    works = PersistentPath.works

    def noted(path: PersistentPath, rows: int = 1) -> bool:
        answers.append(path._working[rows].kernel if works(path, rows) else "")
        return bool(answers[-1])

    monkeypatch.setattr(PersistentPath, "works", noted)
    monkeypatch.setattr(f"{__name__}.NOTED", [answers])
    return answers


@pytest.mark.usefixtures("any_shape")
@pytest.mark.parametrize(
    "name", variants(list(MODELS), ["llama", "types", "qwen2", "gemma2", "qwen3moe", "granitemoe"])
)
def test_logits(tmp_path: Path, used: list[str], name: str) -> None:
    """Sizes of any model: biases, norms, GELU, soft caps, windows, chunks of few lanes, experts; a shader by types."""
    path = write_model(tmp_path / "model.gguf", name)
    with pumice.load(path, backend="numpy", n_ctx=256) as model:
        expected = model.logits(IDS)
    assert error(logits(path, "always"), expected) < 1e-3
    assert used == [KERNELS.get(name, USUAL)] * len(IDS)


@pytest.mark.usefixtures("any_shape")
def test_experts_that_the_device_reads_in_host_memory(tmp_path: Path, used: list[str]) -> None:
    """Logits equal those from device memory bit by bit."""
    path = write_model(tmp_path / "model.gguf", "granitemoe")
    expected = logits(path, "always")
    with load(path, "always", n_batch=1, n_cpu_moe=-1, moe_in_place="on") as model:
        assert any(device.parts["experts"] for device in model.facts.devices if device.name == "cpu")
        np.testing.assert_array_equal(model.logits(IDS), expected)
    assert used == [KERNELS["granitemoe"]] * 2 * len(IDS)


@pytest.mark.usefixtures("any_shape")
def test_the_best_logit_is_found_beside_them(tmp_path: Path, used: list[str]) -> None:
    """Greedy tokens without drafts are those of the best logit of each workgroup."""
    path = write_model(tmp_path / "model.gguf")

    def tokens(persistent: str) -> list[int]:
        with load(path, persistent) as model:
            return list(model.generate(IDS, max_tokens=8, temperature=0, ignore_eos=True, speculate="off").tokens)

    assert tokens("always") == tokens("never")
    assert USUAL in used


@pytest.mark.usefixtures("any_shape")
@pytest.mark.parametrize("name", variants(["llama", "gemma2"], ["llama"]))
def test_attention_to_many_positions(tmp_path: Path, used: list[str], name: str) -> None:
    """Heads that read the same keys together, in more than one round of positions; dispatches filled the cache."""
    path = write_model(tmp_path / "model.gguf", name)
    prompt = [(7 * i + 3) % 300 for i in range(134)]

    def tokens(model: Any) -> list[int]:
        return list(model.generate(prompt, max_tokens=4, temperature=0, ignore_eos=True).tokens)

    with pumice.load(path, backend="numpy", n_ctx=256) as model:
        expected = tokens(model)
    with load(path, "always") as model:
        assert tokens(model) == expected
    assert used == [USUAL] * 3


@pytest.mark.usefixtures("any_shape")
@pytest.mark.parametrize(("which", "n_draft"), variants([(1, 0), (3, 0), (2, 1), (2, 3)], [(1, 0), (3, 0), (2, 1)]))
def test_repeats_failed_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, which: int, n_draft: int
) -> None:
    """Steps that fail are computed anew from the tokens they began with, and those submitted behind them.

    Both paths have the same dispatches here, so that their tokens must be equal.
    """
    path = write_model(tmp_path / "model.gguf")
    failed, calls = PersistentPath.failed, 0

    def fails(this: PersistentPath) -> bool:
        nonlocal calls
        calls += 1
        if calls == which:
            this._flag.contents[:4].view(np.uint32)[0] = 1
        return failed(this)

    def generate(persistent: str) -> list[int]:
        with load(path, persistent, 1 + n_draft, n_draft=n_draft) as model:
            options = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
            tokens: list[int] = model.generate(IDS, **options, speculate="ngram" if n_draft else "off").tokens
        return tokens

    expected = generate("never")
    monkeypatch.setattr(Recorder, "_dispatches", lambda self, recording: self._lower(recording.bucket))
    monkeypatch.setattr(PersistentPath, "works", lambda self, rows: not self.is_off)
    monkeypatch.setattr(PersistentPath, "failed", fails)
    assert generate("always") == expected
    assert calls == which
    assert caplog.text.count("off from now on: workgroups waited in vain") == 1


def logits_of_steps(model: Any, sizes: Sequence[int], n_seqs: int = 1) -> NDArray[np.float32]:
    """The logits of ``IDS``, read by each of ``n_seqs`` sequences in steps of these sizes: [sequence, token, logit]."""

    def steps(engine: Engine) -> Generator[None, None, NDArray[np.float32]]:
        found, first = [], 0
        with taken(engine, sum(sizes), n_seqs) as places:
            for n in sizes:
                parts = [Part(place, IDS[first : first + n], first, range(n)) for place in places]
                result = engine.runner.outputs(batch_of(engine.cache, parts))["logits"]
                found.append(result.copy().reshape(n_seqs, n, -1))
                first += n
                yield
        return np.concatenate(found, 1)

    logits: NDArray[np.float32] = model.engine.thread.call(steps)
    return logits


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of tokens of the steps that were one dispatch."""
    sizes: list[int] = []
    works = PersistentPath.works

    def noted(path: PersistentPath, rows: int = 1) -> bool:
        sizes.extend([rows] * works(path, rows))
        return works(path, rows)

    monkeypatch.setattr(PersistentPath, "works", noted)
    monkeypatch.setattr(f"{__name__}.NOTED", [sizes])
    return sizes


@pytest.mark.usefixtures("any_shape")
def test_several_rows_have_the_bits_of_one(tmp_path: Path, computed: list[int]) -> None:
    """Rows of one sequence and of two, on both sides of the position from which heads share keys."""
    path = write_model(tmp_path / "model.gguf")
    with load(path, "always", rows_in_one_dispatch=2, n_parallel=2, n_draft=1) as model:
        expected = logits_of_steps(model, [1] * 10)
        assert computed == [1] * 10
        computed.clear()
        assert np.array_equal(logits_of_steps(model, [2] * 5), expected)
        assert np.array_equal(logits_of_steps(model, [1] * 10, 2), np.concatenate([expected] * 2))
        assert computed == [2] * 15
        computed.clear()
        plain, *drafted = (
            model.generate(IDS + IDS, max_tokens=12, temperature=0, ignore_eos=True, speculate=name)
            for name in ("off", "ngram", "ngram")  # the last one finds the text of the one before
        )
        assert [each.tokens for each in drafted] == [plain.tokens] * 2
        assert {1, 2} <= set(computed)  # and drafts of fewer tokens near the end


@pytest.mark.nightly
@pytest.mark.usefixtures("any_shape")
def test_rows_whose_gated_values_lie_in_a_buffer(
    tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "MOST_GATED", 0)
    path = write_model(tmp_path / "model.gguf")
    with load(path, "always", rows_in_one_dispatch=2, n_batch=2) as model:
        expected = logits_of_steps(model, [1] * 4)
        assert np.array_equal(logits_of_steps(model, [2] * 2), expected)
        assert computed == [1] * 4 + [2] * 2


@pytest.mark.parametrize("rows", [0, 9, "many"])
def test_unknown_number_of_rows(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(
        pumice.ConfigError, match=rf"vulkan: rows_in_one_dispatch: should be one of auto, 1, .*, 8, not {rows!r}"
    ):
        load(tiny_llama(tmp_path / "model.gguf"), "always", rows_in_one_dispatch=rows)


def test_other_models_take_dispatches(tmp_path: Path, used: list[str]) -> None:
    path = tiny_llama(tmp_path / "model.gguf")  # float32 matrices
    assert logits(path, "always").shape == (len(IDS), 300)
    assert used == []


@pytest.mark.usefixtures("any_shape")
def test_a_token_is_one_dispatch_once_its_pipeline_is_compiled(
    tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first process of a device the first tokens are dispatches, since a driver takes seconds for the kernel."""
    compiled, pipeline = threading.Event(), Kernels.pipeline

    def late(kernels: Kernels, dispatch: Any) -> Any:
        assert not dispatch.kernel.startswith("persistent") or compiled.wait(60)
        return pipeline(kernels, dispatch)

    monkeypatch.setattr(Kernels, "pipeline", late)
    monkeypatch.setattr("pumice_vulkan.device.native.device.NativeDevice.knows_pipelines", False)
    path = write_model(tmp_path / "model.gguf")
    section = {"persistent": "always", "activations": "int8", "driver": "native", "prepare": "always"}
    with pumice.load(path, backend="vulkan", n_ctx=256, n_batch=2, config={"vulkan": section}) as model:
        before = logits_of_steps(model, [1] * 4)
        assert not computed
        compiled.set()
        deadline = time.monotonic() + 60
        while 1 not in computed and time.monotonic() < deadline:
            after = logits_of_steps(model, [1] * 4)
        assert 1 in computed
        assert error(after, before) < 1e-3


@pytest.mark.usefixtures("any_shape")
def test_rows_are_one_dispatch_once_their_pipeline_is_compiled(
    tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumice_vulkan.device.native.device.NativeDevice.knows_pipelines", True)
    path = write_model(tmp_path / "model.gguf")
    section = {"persistent": "always", "activations": "int8", "driver": "native", "prepare": "always"}
    with pumice.load(path, backend="vulkan", n_ctx=256, n_batch=2, config={"vulkan": section}) as model:
        expected = logits_of_steps(model, [1] * 6)
        settle(model)
        computed.clear()
        assert np.array_equal(logits_of_steps(model, [2] * 3), expected)
        assert computed == [2] * 3
