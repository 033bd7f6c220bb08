"""The time that a generated token takes beside its step: engine, samplers and text, measured without a device."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.backend import Backend, Program
from pumice.backend.step import Limits, Step
from pumice.config import load_config
from pumice.demo import demo_model_path
from pumice.graph import MemoryPlan, Node, Segment, concrete
from pumice.hookspecs import hookimpl

_NAME = "instant"
_N_TOKENS, _N_RUNS = 32, 3
_N_CTX = 256
_READ_BYTES = 32 * 2**20  # that a step reads, as real ones read weights, so that the host's code begins without caches


@functools.cache  # the same for every device
def host_seconds(load: Callable[..., Any]) -> float:
    """Return the shortest time of a token beside its step, with default sampling, by steps that compute nothing.

    Args:
        load: the class of models, which is defined above this module.

    Raises:
        PumiceError: the demo model does not load.
    """
    settings = {"backend": _NAME, "n_ctx": _N_CTX, "n_parallel": 1, "speculate": "off", "draft": "", "cache_ram": 0}
    with load(demo_model_path(), load_config(settings), plugins=[_plugin()]) as model:
        prompt = model.tokenize("Once upon a time")
        return min(_seconds(model, prompt) for _ in range(_N_RUNS))


def _seconds(model: Any, prompt: list[int]) -> float:
    begun, before = time.perf_counter(), _InstantProgram.seconds
    tokens = model.generate(prompt, max_tokens=_N_TOKENS).tokens
    seconds = time.perf_counter() - begun - (_InstantProgram.seconds - before)
    return float(seconds / len(tokens))


def _plugin() -> ModuleType:
    @hookimpl
    def pumice_register_backends(register: Callable[[str, type], None]) -> None:
        register(_NAME, _Instant)

    module = ModuleType(_NAME)
    module.pumice_register_backends = pumice_register_backends  # type: ignore[attr-defined]
    return module


class _Instant(Backend):
    """A backend whose programs return the same random values in every step."""

    def supports(self, node: Node, limits: Limits) -> bool:
        return True

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        return _InstantProgram(segment)


class _InstantProgram(Program):
    seconds = 0.0  # in steps of all programs

    def __init__(self, segment: Segment) -> None:
        self._read = np.ones(_READ_BYTES // 4, np.float32)
        self._outputs = segment.outputs
        self._values: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def run(self, step: Step) -> Mapping[str, NDArray[Any]]:
        begun = time.perf_counter()
        self._read.max()
        shapes = {tensor.name: concrete(tensor.shape, step.batch.sizes) for tensor in self._outputs}
        values = {name: self._value(shape) for name, shape in shapes.items()}
        _InstantProgram.seconds += time.perf_counter() - begun
        return values

    def _value(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        if shape not in self._values:
            self._values[shape] = np.random.default_rng(0).standard_normal(shape, np.float32)
        return self._values[shape]

    @property
    def memory(self) -> dict[str, int]:
        return {}
