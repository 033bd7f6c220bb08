"""Every call that takes something of the driver fails once, while a model is loaded and generates.

That is one error of that load or of that generation; everything is given back, and the next try gives the right tokens.
"""

import importlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import pumice
from pumice.errors import PumiceError
from tiny_models import IDS

pytestmark = pytest.mark.usefixtures("vulkan_device")

MODULES = ("memory", "commands", "descriptors", "gate", "logical", "pipeline", "pipeline_cache", "pools")
OUT_OF_DEVICE_MEMORY = -2
CREATED = ("Buffer", "DescriptorPool", "DescriptorSetLayout", "PipelineLayout", "Semaphore", "CommandPool", "Fence")
CREATED += ("PipelineCache", "ComputePipelines", "ShaderModule", "Device")
FUNCTIONS = (
    *(f"vkCreate{name}" for name in CREATED),
    *("vkAllocateCommandBuffers", "vkAllocateDescriptorSets", "vkAllocateMemory", "vkBindBufferMemory", "vkMapMemory"),
    *("vkBeginCommandBuffer", "vkEndCommandBuffer", "vkQueueSubmit"),
)


class Calls:
    """Stands for Vulkan's functions: counts the calls of some, and lets one of them fail."""

    def __init__(self, wrapped: Any, counts: Counter[str], failing: tuple[str, int]) -> None:
        self._wrapped, self._counts, self._failing = wrapped, counts, failing

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._wrapped, name)
        return self._counted(name, function) if name in FUNCTIONS else function

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._counts[name] += 1
            fails = (name, self._counts[name]) == self._failing
            return OUT_OF_DEVICE_MEMORY if fails else function(*arguments)

        return call


@contextmanager
def failing(name: str, number: int) -> Iterator[Counter[str]]:
    """Let the call ``number`` of a function fail; how often each is called."""
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for module in (importlib.import_module(f"pumice_vulkan.device.native.{name}") for name in MODULES):
            patch.setattr(module, "lib", Calls(module.lib, counts, (name, number)))
        yield counts


def load(path: Path) -> pumice.Model:
    """Load without a thread that prepares steps, whose failures are no error: the step makes what is missing itself."""
    config = {"vulkan": {"driver": "native", "prepare": "never"}}
    with mock.patch.dict(os.environ, {"PUMICE_VULKAN_SOFTWARE": "1"}):  # also where a module's fixture loads
        return pumice.load(path, backend="vulkan", n_ctx=64, n_batch=16, config=config)


def tokens(model: pumice.Model) -> list[int]:
    return model.generate(IDS[:6], max_tokens=5, temperature=0).tokens


@pytest.fixture(scope="module")
def path(tiny_file):
    return tiny_file("llama-bias")


@pytest.fixture(scope="module")
def expected(path):
    with load(path) as model:
        return tokens(model)


@pytest.fixture(scope="module")
def counts(path, expected):
    """How often each function is called by a load and a generation."""
    with failing("", 0) as counts, load(path) as model:
        assert tokens(model) == expected
    return counts


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_that_fails_is_one_error(path, expected, counts, name):
    assert counts[name] or name in ("vkCreateSemaphore", "vkCreatePipelineCache"), "never called: what does it prove?"
    last = counts[name] - counts[name] // 8
    for number in sorted({1, counts[name] // 2, last} - {0}):
        errors, model = [], None
        with failing(name, number) as called:
            try:
                model = load(path)
                tokens(model)
            except PumiceError as error:
                errors.append(str(error))
            fails = called[name] >= number
            assert fails or number == last, "how many submissions a generation takes varies with its steps ahead"
            assert len(errors) == fails, f"call {number} of {name} failed, and nobody noticed"
            assert "\n" not in "".join(errors)
            if model is not None:
                with model:
                    assert tokens(model) == expected, f"after call {number} of {name} failed with {errors}"


def test_no_thread_fills_buffers_of_a_load_that_failed(path, monkeypatch):
    """The device is closed, and its memory is gone."""
    copy, copied = np.copyto, []

    def slow(*arguments: Any) -> None:
        copied.append(threading.current_thread())
        time.sleep(0.1)
        copy(*arguments)

    monkeypatch.setattr("pumice_vulkan.memory.np.copyto", slow)
    number = 0
    while not copied:
        number += 1
        with failing("vkEndCommandBuffer", number), pytest.raises(PumiceError):
            load(path)
    assert not any(thread.is_alive() for thread in copied)
