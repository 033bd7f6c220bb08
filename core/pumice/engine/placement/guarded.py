"""Calls of backends and programs of plugins: errors name the plugin, and results are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pumice.backend import Backend, Program
from pumice.backend.step import Pending, Step
from pumice.errors import PluginError
from pumice.graph import Tensor
from pumice.guard import UNEXPECTED, guard, guarded, raise_named

if TYPE_CHECKING:
    from pumice.backend.contract import Array
    from pumice.backend.pick import Ahead, Restriction

    Outputs = Mapping[str, Array]

P = ParamSpec("P")
R = TypeVar("R")

_METHODS = [name for name, member in vars(Backend).items() if isfunction(member) and not name.startswith("_")]


def make_backend(cls: type[Backend], options: Mapping[str, Any], where: str) -> Backend:
    """Return a backend of a plugin; ``where`` names both in messages: ``backend 'cpu' (plugin cpu)``."""
    backend = guarded(cls, f"{where}: __init__")(cls.Options(**options))
    backend.title = where
    guard(backend, where, _METHODS)
    return backend


class SegmentProgram:
    """The program of a segment, whose steps are checked.

    Args:
        program: the program.
        where: the backend and its plugin, for messages; empty: a program that is no plugin's, and is not checked.
        outputs: outputs of the segment.
    """

    def __init__(self, program: Program, where: str = "", outputs: Sequence[Tensor] = ()) -> None:
        if where and not isinstance(program, Program):
            raise PluginError(f"{where}: compile: expected a Program, not {program!r}")
        self.program = program
        self._where = where
        plain = type(program).submit is Program.submit
        self._step_where = where and f"{where}: {'run' if plain else 'submit'}"
        self._expected = [(tensor, _fixed(tensor)) for tensor in outputs] if where else []

    def submit(self, step: Step, receive: Callable[[Outputs], Outputs] | None = None) -> Pending:
        """Submit a step; ``receive`` gets its outputs, and returns those of the step to wait for."""
        try:
            pending = self.program.submit(step)
        except UNEXPECTED as error:
            raise_named(error, self._step_where)
        if not isinstance(pending, Pending):
            raise PluginError(f"{self._step_where}: expected a Pending, not {pending!r}")
        return _Step(pending, self._step_where, self._expected, receive)

    def call(self, method: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call another method of the program."""
        try:
            return method(*args, **kwargs)
        except UNEXPECTED as error:
            raise_named(error, self._where and f"{self._where}: {method.__name__}")


class _Step(Pending):
    """A submitted step of a program: the only wrapper of a plugin's ``Pending``."""

    def __init__(
        self,
        pending: Pending,
        where: str,
        expected: Sequence[tuple[Tensor, Sequence[tuple[int, int]]]],
        receive: Callable[[Outputs], Outputs] | None,
    ) -> None:
        self._pending = pending
        self._where = where
        self._expected = expected
        self._receive = receive

    def begin(self, inputs: Mapping[str, Array]) -> None:
        try:
            self._pending.begin(inputs)
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        try:
            self._pending.restrict(restrictions)
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def outputs(self) -> Outputs:
        try:
            outputs = self._pending.outputs()
        except UNEXPECTED as error:
            raise_named(error, self._where)
        self._check(outputs)
        return self._receive(outputs) if self._receive else outputs

    def tokens(self) -> Iterator[Ahead]:
        try:
            yield from self._pending.tokens()
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def _check(self, outputs: object) -> None:
        """Raise PluginError unless there is an array of the right shape for each output."""
        for tensor, fixed in self._expected:
            value = outputs.get(tensor.name) if isinstance(outputs, (dict, Mapping)) else None
            shape = getattr(value, "shape", None)
            if shape is None:
                raise PluginError(f"{self._where}: returned no array for {tensor}")
            if len(shape) != len(tensor.shape) or any(shape[axis] != n for axis, n in fixed):
                raise PluginError(f"{self._where}: returned an array of shape {list(shape)} for {tensor}")


def _fixed(tensor: Tensor) -> list[tuple[int, int]]:
    """Return the axes of a tensor whose sizes do not depend on the step, and these sizes."""
    return [(axis, n) for axis, n in enumerate(tensor.shape) if isinstance(n, int)]
