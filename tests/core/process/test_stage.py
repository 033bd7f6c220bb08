"""Stages of a model, here in one process: they give what the model gives, also with steps on their way together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from installed_plugins import passed
from pumice.backend import Backend, Capabilities, Program
from pumice.backend.step import Pending, Step
from pumice.process.stage import Stage, fingerprint, stages_needed
from tiny_zoo import ZOO

PROMPTS = [[3, 4, 5], [6, 7], [(7 * i) % 29 + 3 for i in range(60)], [9], [10, 11, 12, 13]]
COUNT = 2
NAMES = ["cohere2", "gemma4-e2b", "deepseek2", "jamba"]
"""With windows, layers that share a cache, an expansion for prompts, recurrent states."""


class Late(Pending):
    def __init__(self, results: Callable[[], Any]) -> None:
        self.outputs = results  # type: ignore[method-assign]


class Staged(Program):
    """Runs a step when its results are wanted, or another after it is: as late as actors may."""

    def __init__(self, stages: Sequence[Stage], name: str, route: Any, compiled: Any, outputs: Sequence[str]) -> None:
        self.stages, self.name, self.route, self.compiled, self.outputs = stages, name, route, compiled, outputs
        self.queue: list[Callable[[], Any]] = []
        self.most = 0
        self.fails = False
        self.capabilities = Capabilities(
            copies_slots=all(each.copies_slots for each in compiled if each.recurrent), n_in_flight=COUNT
        )

    def run(self, step: Step) -> Mapping[str, Any]:
        return self.submit(step).outputs()

    def submit(self, step: Step) -> Pending:
        done: dict[str, Any] = {}
        values, batch = dict(step.inputs), step.batch

        def compute() -> None:
            for number, hop in enumerate(self.route):
                arrays = [np.array(values[name]) for name in hop.inputs]
                found = self.stages[hop.stage].run(self.name, number, batch, arrays)
                values.update(zip(hop.outputs, map(np.array, found), strict=True))
            done.update({name: values[name] for name in self.outputs})

        def results() -> Mapping[str, Any]:
            self.flush(compute)
            if self.fails:
                raise pumice.EngineDiedError("stage 2 of 2 is gone")
            return done

        self.queue.append(compute)
        self.most = max(self.most, len(self.queue))
        return Late(results)

    def flush(self, last: Callable[[], Any] | None = None) -> None:
        while self.queue and (last is None or last in self.queue):
            self.queue.pop(0)()

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.queue.append(lambda: [stage.copy_slots(self.name, pairs) for stage in self.stages])

    @property
    def memory(self) -> dict[str, int]:
        return {"kv_cache": sum(each.memory["kv_cache"] for each in self.compiled)}


def load(path: Path, **options: Any) -> tuple[pumice.Model, list[Staged]]:
    programs: list[Staged] = []

    class Stages(Backend):
        def supports(self, node: Any, limits: Any) -> bool:
            return True

        def compile(self, segment: Any, plan: Any, limits: Any) -> Program:
            if not hasattr(self, "stages"):
                self.stages = [Stage(str(path), {"backend": "numpy", **options}, limits) for _ in range(COUNT)]
                stage_of = self.stages[0].share([None] * COUNT)
                self.routes, *others = [stage.take(i, stage_of) for i, stage in enumerate(self.stages)]
                assert others == [self.routes] * (COUNT - 1)
            name = fingerprint(segment.nodes)
            compiled = [stage.compile(name, limits) for stage in self.stages]
            outputs = [tensor.name for tensor in segment.outputs]
            programs.append(Staged(self.stages, name, self.routes[name], compiled, outputs))
            return programs[-1]

        def close(self) -> None:
            for stage in self.stages:
                stage.close()

    return pumice.load(path, backend="staged", plugins=[passed("backends", staged=Stages)], **options), programs


@pytest.mark.parametrize("name", NAMES)
def test_stages_give_what_the_model_gives(tmp_path: Path, name: str) -> None:
    path = ZOO[name].write(tmp_path / "tiny.gguf")
    options = {"n_parallel": 4, "n_batch": 32, "kv_type": "f32"}
    model, programs = load(path, **options)
    with model, pumice.load(path, backend="numpy", **options) as here:
        assert (model.logits(PROMPTS[2]) == here.logits(PROMPTS[2])).all()
        asked = {"max_tokens": 20, "temperature": 0}
        expected = [each.tokens for each in here.generate_many(PROMPTS, **asked)]
        assert [each.tokens for each in model.generate_many(PROMPTS, **asked)] == expected
        assert model.memory["kv_cache"] == here.memory["kv_cache"]
        assert programs[0].most >= COUNT


def test_steps_that_fail_take_all_their_sequences_with_them(tmp_path: Path) -> None:
    model, programs = load(ZOO["qwen3"].write(tmp_path / "tiny.gguf"), n_parallel=4)
    with model:
        streams = [model.stream(prompt, max_tokens=None, context_shift=True) for prompt in PROMPTS]
        for stream in streams[:4]:
            next(stream)
        programs[0].fails = True
        for stream in streams:
            with pytest.raises(pumice.EngineDiedError, match="stage 2 of 2 is gone"):
                stream.completion()
        programs[0].fails = False
        assert len(model.generate([3], max_tokens=4).tokens) == 4
        assert model.engine.snapshot().n_running == 0
        assert model.engine.snapshot().n_blocks_free == model.engine.snapshot().n_blocks


def test_sequences_that_end_on_their_way_give_their_room_to_others(tmp_path: Path) -> None:
    path = ZOO["jamba"].write(tmp_path / "tiny.gguf")
    model, _ = load(path, n_parallel=3, n_ctx=256, kv_type="f32")
    asked = {"max_tokens": 12, "temperature": 0}
    with model, pumice.load(path, backend="numpy", kv_type="f32") as here:
        expected = [each.tokens for each in here.generate_many(PROMPTS * 3, **asked)]
        endless = [model.stream(prompt, max_tokens=None, context_shift=True) for prompt in PROMPTS]
        for stream in endless[:2]:
            next(stream)
        for stream in endless:
            stream.close()
        assert [each.tokens for each in model.generate_many(PROMPTS * 3, **asked)] == expected


def test_as_many_stages_as_the_memory_of_each_asks_for(tmp_path: Path) -> None:
    path = str(ZOO["cohere2"].write(tmp_path / "tiny.gguf"))
    with pumice.load(path, backend="numpy") as here:
        n_bytes = sum(here.memory[name] for name in ("weights", "kv_cache"))
    assert stages_needed(path, {}, 2 * n_bytes) == 1
    assert 2 <= stages_needed(path, {}, n_bytes // 2) <= 4
    with pytest.raises(pumice.BackendError, match="a layer takes up to"):
        stages_needed(path, {}, 100)
