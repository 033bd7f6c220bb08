"""Backends and programs as the engine calls them: their errors name the plugin, and their results are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pumice.backend import Backend, Program
from pumice.errors import PluginError
from pumice.graph import MemoryPlan, Segment
from pumice.guard import guard, guarded
from pumice.step import Batch, Limits

if TYPE_CHECKING:
    from pumice.backend import Array, Pending


def make_backend(cls: type[Backend], options: Mapping[str, Any], where: str) -> Backend:
    """A backend of a plugin; ``where`` names both in messages: ``backend 'cpu' (plugin cpu)``."""
    backend = guarded(cls, f"{where}: __init__")(cls.Options(**options))
    guard(backend, where, ["supports", "free_memory", "footprint", "rewrite", "compile", "close"])
    compile = backend.compile

    def compile_guarded(segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        program = compile(segment, plan, limits)
        if not isinstance(program, Program):
            raise PluginError(f"{where}: compile: expected a Program, not {program!r}")
        guard(
            program,
            where,
            [
                "run",
                "submit",
                "prepare",
                "run_ahead",
                "prepare_ahead",
                "submit_ahead",
                "copy_slots",
                "profile",
                "close",
            ],
        )
        _check_results(program, segment, where)
        return program

    backend.compile = compile_guarded  # type: ignore[method-assign]
    return backend


def _check_results(program: Program, segment: Segment, where: str) -> None:
    """Have a program's results checked: an array of the right shape for each of the segment's outputs."""
    run, submit = program.run, program.submit

    def check(results: object) -> None:
        for tensor in segment.outputs:
            value = results.get(tensor.name) if isinstance(results, Mapping) else None
            shape = getattr(value, "shape", None)
            if shape is None:
                raise PluginError(f"{where}: run: gave no array for {tensor}")
            known = [(n, m) for n, m in zip(tensor.shape, shape, strict=False) if isinstance(n, int)]
            if len(shape) != len(tensor.shape) or any(n != m for n, m in known):
                raise PluginError(f"{where}: run: gave an array of shape {list(shape)} for {tensor}")

    def run_checked(inputs: Mapping[str, Array], batch: Batch) -> Mapping[str, Array]:
        results = run(inputs, batch)
        check(results)
        return results

    def submit_checked(inputs: Mapping[str, Array], batch: Batch) -> Pending:
        pending = guarded(submit(inputs, batch), f"{where}: submit")

        def results() -> Mapping[str, Array]:
            found = pending()
            check(found)
            return found

        return results

    program.run = run_checked  # type: ignore[method-assign]
    if type(program).submit is not Program.submit:
        program.submit = submit_checked  # type: ignore[method-assign]
