"""Sizes of steps are made ready in a thread beside generation, and a step takes a larger one that is ready."""

import ctypes
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import pumice
from nightly import variants
from pumice.plugin import BackendError
from pumice.plugin.unstable import Limits
from pumice_vulkan import folders
from pumice_vulkan import program as programs
from pumice_vulkan.buckets import Bucket, Buckets
from pumice_vulkan.device import Device
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.preparer import Preparer, Work
from tiny_models import IDS
from waiting import wait_until

LIMITS = Limits(n_ctx=64, n_batch=16, n_seqs=8, n_outputs=8, n_blocks={}, block_size=16, kv_type="f16")
BUCKETS = Buckets(LIMITS)
PROMPTS = [IDS[:n] for n in (6, 5, 4, 7, 3)]


def test_a_failed_preparation_is_left_to_the_step_that_needs_it(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the error is, and whichever part of it fails."""
    done: list[str] = []
    errors = dict(zip(BUCKETS.all, [BackendError("memory is full"), RuntimeError("a"), KeyError("b")], strict=False))

    def pieces(bucket: Bucket) -> Iterator[Work]:
        yield lambda: done.append("first")
        if isinstance(errors.get(bucket), BackendError):
            raise errors[bucket]
        yield mock.Mock(side_effect=errors.get(bucket))
        yield lambda: done.append("last")

    preparer = Preparer(BUCKETS.all[:4], pieces, mock.Mock(side_effect=OSError("c")))
    with caplog.at_level(logging.INFO, "pumice"):
        preparer.start()
        preparer.wait()
    assert preparer.ready == {BUCKETS.all[3]}
    assert done == ["first"] * 4 + ["last"]
    assert all(part in caplog.text for part in ("memory is full", "RuntimeError: a", "KeyError: 'b'", "OSError: c"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that are made."""
    found: list[Any] = []
    initialize = programs.DeviceProgram.__init__

    def init(self: Any, *arguments: Any) -> None:
        initialize(self, *arguments)
        found.append(self)

    monkeypatch.setattr(programs.DeviceProgram, "__init__", init)
    return found


def load(path: Path, prepare: str, **config: Any) -> pumice.Model:
    config["vulkan"] = {"driver": "native", "prepare": prepare}
    return pumice.load(path, backend="vulkan", n_ctx=256, n_batch=16, n_parallel=4, config=config)


def texts(model: pumice.Model) -> list[list[int]]:
    def generate(prompt: list[int]) -> list[int]:
        return model.generate(prompt, max_tokens=12, temperature=0).tokens

    with ThreadPoolExecutor(len(PROMPTS)) as users:
        return list(users.map(generate, PROMPTS))


@pytest.fixture(scope="class")
def kept(all_kept_pipelines: Any) -> Iterator[None]:
    """Let the class's tests compile a pipeline once: it is their steps that are prepared."""
    with all_kept_pipelines.lent():
        yield


@pytest.mark.usefixtures("vulkan_device", "kept")
class TestModels:
    def test_texts_are_those_without_it(self, tiny_file: Any, made: list[Any]) -> None:
        path = tiny_file("llama-bias")
        with load(path, "never") as model:
            expected = texts(model)
        with load(path, "always") as model:
            meanwhile = texts(model)
            made[-1].preparation.join()
            assert made[-1].preparation.ready == set(made[-1]._buckets.all)
            n_pipelines = len(made[-1]._shared.kernels._pipelines)
            assert texts(model) == expected
            assert len(made[-1]._shared.kernels._pipelines) == n_pipelines, "a step compiled what was not prepared"
        assert meanwhile == expected

    @pytest.mark.parametrize("name", variants(["llama-bias", "gemma2", "mamba"], ["llama-bias", "mamba"]))
    def test_steps_are_rehearsed_before_the_first_request(self, tiny_file: Any, made: list[Any], name: str) -> None:
        """A prompt and a token, which change no text; models with recurrent states do without."""
        path = tiny_file(name)
        with load(path, "never") as model:
            expected = texts(model)
        with load(path, "always") as model:
            made[-1].wait_until_prepared()
            last = made[-1]._recorder.last
            assert last is not None or name == "mamba"
            assert texts(model) == expected
            last = made[-1]._recorder.last
            made[-1].wait_until_prepared()
            assert made[-1]._recorder.last is last

    @pytest.mark.parametrize("at_load", [True, False])
    def test_steps_with_drafts_are_prepared(self, tiny_file: Any, made: list[Any], at_load: bool) -> None:
        """At load if requests draft by default, else when the first does."""
        choice = {"speculate": "ngram"}
        with load(tiny_file("llama-bias"), "always", n_draft=15, **(choice if at_load else {})) as model:
            if not at_load:
                model.generate(IDS[:6], max_tokens=12, temperature=0, **choice)
            made[-1].wait_until_prepared()
            assert made[-1].preparation._drafts.ready == {Bucket(n, n) for n in (2, 4, 8, 16)}
            recorded = set(made[-1]._recorder._recorded)
            n_pipelines = len(made[-1]._shared.kernels._pipelines)
            options: list[dict[str, Any]] = [{"temperature": 0}, {"logit_bias": {1: 9.0}, "repeat_penalty": 1.1}]
            for more in options:
                done = model.generate(IDS[:6] * 3, max_tokens=80, **more, **choice)
            assert done.timings.n_drafted > 0
            drafting = {recording for recording in made[-1]._recorder._recorded if recording.choice.drafted}
            assert drafting <= recorded
            assert len(made[-1]._shared.kernels._pipelines) == n_pipelines, "a step compiled what was not prepared"

    def test_closing_ends_what_is_compiled(self, tiny_file: Any, made: list[Any], monkeypatch: Any) -> None:
        asked: list[Any] = []
        compile_all = Kernels.compile

        def watched(self: Kernels, dispatches: Any, *ends: Any) -> None:
            asked.extend(ends)
            compile_all(self, dispatches, *ends)

        monkeypatch.setattr(Kernels, "compile", watched)
        with load(tiny_file("llama-bias"), "always"):
            wait_until(lambda: asked)
            assert not asked[0]()
        assert asked[0]()

    def test_a_model_is_closed_while_it_prepares(self, tiny_file: Any, made: list[Any]) -> None:
        with load(tiny_file("llama-bias"), "always") as model:
            assert len(model.generate(IDS[:5], max_tokens=1, temperature=0).tokens) == 1
        assert not made[-1].preparation._steps._thread.is_alive()
        assert made[-1]._shared.device.n_allocations == 0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path))
    return tmp_path / "vulkan"


def suffix() -> str:
    """Return the suffix of a cache's file; its module needs the Vulkan loader, which not every machine has."""
    from pumice_vulkan.device.native.pipeline_cache import SUFFIX

    return SUFFIX


class Driver:
    """Stands for the functions of the driver: a pipeline cache that is what it was made with, and more."""

    def __init__(self, grown: bytes = b"") -> None:
        self.begun: list[bytes] = []
        self._grown = grown

    def begin(self, monkeypatch: pytest.MonkeyPatch, device: Device) -> Any:
        from pumice_vulkan.device.native import pipeline_cache

        def create(_: Any, how: Any, __: Any, ___: Any) -> int:
            info = how._obj
            self.begun.append(ctypes.string_at(info.pInitialData, info.initialDataSize) if info.pInitialData else b"")
            return 0

        lib = mock.Mock(wraps=pipeline_cache.lib)
        lib.vkCreatePipelineCache = create
        monkeypatch.setattr(pipeline_cache, "lib", lib)
        made = pipeline_cache.PipelineCache(0, device.description)
        monkeypatch.setattr(made, "_data", lambda: self.begun[-1] + self._grown)
        return made


@pytest.mark.parametrize("driver", ["native"], indirect=True)
class TestPipelineCache:
    def test_compiled_pipelines_are_there_for_the_next_process(
        self, cache: Path, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver = Driver(grown=b"pipeline")
        driver.begin(monkeypatch, device).save()
        again = driver.begin(monkeypatch, device)
        again.save()
        assert driver.begun == [b"", b"pipeline"]
        driver.begin(monkeypatch, device)
        assert driver.begun[-1] == b"pipelinepipeline"
        assert [file.suffix for file in cache.iterdir()] == [suffix()]

    def test_a_broken_pipeline_cache_is_ignored(self, cache: Path, device: Device, monkeypatch: Any) -> None:
        driver = Driver(grown=b"pipeline")
        driver.begin(monkeypatch, device).save()
        (file,) = cache.iterdir()
        content = file.read_bytes()
        for broken in (content[:-1], content[:10], b"", content[:-1] + b"x"):
            file.write_bytes(broken)
            driver.begin(monkeypatch, device)
            assert driver.begun[-1] == b""

    def test_a_folder_that_cannot_be_written_does_no_harm(self, cache: Path, device: Device, monkeypatch: Any) -> None:
        cache.write_text("no folder")
        Driver(grown=b"pipeline").begin(monkeypatch, device).save()
        assert cache.read_text() == "no folder"

    @pytest.mark.parametrize("mode", [0o777, 0o770])
    def test_a_folder_that_others_may_write_to_is_not_used(
        self, cache: Path, device: Device, monkeypatch: pytest.MonkeyPatch, mode: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        driver = Driver(grown=b"pipeline")
        driver.begin(monkeypatch, device).save()
        cache.chmod(mode)
        folders._safe.cache_clear()
        driver.begin(monkeypatch, device).save()
        assert driver.begun == [b"", b""]
        assert f"ignoring cache {cache}" in caplog.text


def test_threads_have_command_pools_of_their_own(device: Device) -> None:
    if not device.compiles_beside:
        pytest.skip("the driver has one thread")
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(device.new_command_buffer).result()
        mine = device.new_command_buffer()
        assert theirs._pool is not mine._pool
        theirs.close()
        assert list(theirs._pool._left) == [theirs.handle]
        mine.close()
        assert not mine._pool._left
        other.submit(lambda: device.new_command_buffer().close()).result()
    assert not theirs._pool._left
