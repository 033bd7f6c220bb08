"""Wrap backends and programs of plugins: errors name the plugin, and results are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pumice.backend import Backend, Program
from pumice.backend.step import Batch, Limits, Pending, Step
from pumice.errors import PluginError
from pumice.graph import MemoryPlan, Segment
from pumice.guard import UNEXPECTED, guard, guarded, raise_named

if TYPE_CHECKING:
    from pumice.backend.contract import Array
    from pumice.backend.pick import Ahead, Restriction


def make_backend(cls: type[Backend], options: Mapping[str, Any], where: str) -> Backend:
    """Return a backend of a plugin; ``where`` names both in messages: ``backend 'cpu' (plugin cpu)``."""
    backend = guarded(cls, f"{where}: __init__")(cls.Options(**options))
    guard(backend, where, ["supports", "free_memory", "facts", "footprint", "launches", "rewrite", "compile", "close"])
    compile = backend.compile

    def compile_guarded(segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        program = compile(segment, plan, limits)
        if not isinstance(program, Program):
            raise PluginError(f"{where}: compile: expected a Program, not {program!r}")
        _guard_program(program, segment, where)
        return program

    backend.compile = compile_guarded  # type: ignore[method-assign]
    return backend


class _Checked(Pending):
    """A step of a plugin's program. Errors name the plugin, and results are checked."""

    def __init__(self, pending: Pending, check: Callable[[object], None], where: str) -> None:
        self.pending = pending
        self._check = check
        self._where = f"{where}: submit"

    def unwrapped(self) -> Pending:
        return self.pending.unwrapped()

    def begin(self, inputs: Mapping[str, Array]) -> None:
        try:
            self.pending.begin(inputs)
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def again(self, batch: Batch) -> bool:
        try:
            return self.pending.again(batch)
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        guarded(self.pending.restrict, self._where)(restrictions)

    def outputs(self) -> Mapping[str, Array]:
        try:
            outputs = self.pending.outputs()
        except UNEXPECTED as error:
            raise_named(error, self._where)
        self._check(outputs)
        return outputs

    def tokens(self) -> Iterator[Ahead]:
        try:
            yield from self.pending.tokens()
        except UNEXPECTED as error:
            raise_named(error, self._where)


def _guard_program(program: Program, segment: Segment, where: str) -> None:
    """Wrap a program: errors name it, and its results are checked for an array of the right shape per output."""
    moving = ["copy_slots", "read_blocks", "write_blocks", "read_slots", "write_slots"]
    guard(program, where, ["run", *moving, "profile", "close", "finish"])
    run, submit = program.run, program.submit

    expected = [
        (tensor, tensor.name, len(tensor.shape), [(i, n) for i, n in enumerate(tensor.shape) if isinstance(n, int)])
        for tensor in segment.outputs
    ]

    def check(results: object) -> None:
        for tensor, name, n_axes, fixed in expected:
            value = results.get(name) if isinstance(results, (dict, Mapping)) else None
            shape = getattr(value, "shape", None)
            if shape is None:
                raise PluginError(f"{where}: run: returned no array for {tensor}")
            if len(shape) == n_axes:
                for axis, n in fixed:
                    if shape[axis] != n:
                        break
                else:
                    continue
            raise PluginError(f"{where}: run: returned an array of shape {list(shape)} for {tensor}")

    def run_checked(step: Step) -> Mapping[str, Array]:
        results = run(step)
        check(results)
        return results

    def submit_checked(step: Step) -> Pending:
        if step.behind is not None:
            step = replace(step, behind=step.behind.unwrapped())
        if step.after is not None:
            step = replace(step, after=step.after.unwrapped())
        try:
            pending = submit(step)
        except UNEXPECTED as error:
            raise_named(error, f"{where}: submit")
        if not isinstance(pending, Pending):
            raise PluginError(f"{where}: submit: expected a Pending, not {pending!r}")
        return _Checked(pending, check, where)

    program.run = run_checked  # type: ignore[method-assign]
    if type(program).submit is not Program.submit:
        program.submit = submit_checked  # type: ignore[method-assign]
