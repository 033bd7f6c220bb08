"""A pipeline stage in an actor: loads its layers and computes its part of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import wraps
from typing import Any, TypeVar, cast

from pumice.plugin.unstable import Batch, Limits
from pumice.process.codec import portable
from pumice.process.stage import Compiled, Routes, Stage, memory_of
from pumice.process_list import RunningModel
from pumice_ray.actor import own_address, own_devices

NAME = "pumice-stage-"  # prefix of actor names, followed by a unique part

Method = TypeVar("Method", bound=Callable[..., Any])


def _portable(method: Method) -> Method:
    @wraps(method)
    def called(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise portable(error) from None

    return cast(Method, called)


class StageActor:
    """The actor class; see ``Stage``."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._compiled: dict[str, Compiled] = {}

    @_portable
    def open(self, model: str, arguments: Mapping[str, Any], limits: Limits, memory: int, count: int) -> int | None:
        """Open the model and return the bytes that its layers may take; None: unlimited."""
        self._name, self._n_ctx, self._count = model, limits.n_ctx, count
        self._stage = Stage(model, own_devices(arguments), limits)
        return memory or self._stage.free_memory

    @_portable
    def share(self, memory: Sequence[int | None]) -> dict[int, int]:
        return self._stage.share(memory)

    @_portable
    def take(self, stage_of: Mapping[int, int]) -> Routes:
        return self._stage.take(self._number, stage_of)

    @_portable
    def compile(self, name: str, limits: Limits) -> Compiled:
        self._compiled[name] = self._stage.compile(name, limits)
        return self._compiled[name]

    @_portable
    def run(self, name: str, hop: int, batch: Batch, *arrays: Any) -> Any:
        """Run a part and return its result: an array, or several."""
        results = self._stage.run(name, hop, batch, arrays)
        return results if len(results) > 1 else results[0]

    def copy_slots(self, name: str, pairs: Sequence[tuple[int, int]]) -> None:
        self._stage.copy_slots(name, pairs)

    def describe(self) -> dict[str, Any]:
        """Return the fields of ``RunningModel`` for ``pumice ps --ray``."""
        memory = memory_of(self._compiled.values())
        model = f"{self._name} (stage {self._number + 1} of {self._count})"
        return asdict(RunningModel("stage", model, self._stage.backends, memory, self._n_ctx, own_address()))
