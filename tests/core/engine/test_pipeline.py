"""Programs of several devices in a row: they work at the same time, in order, and nothing is mixed up."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from graphs import batch, picked, step_of
from installed_plugins import passed
from pumice.backend import Capabilities, Program
from pumice.backend.pick import Ahead, Ask, Pick, PickLimits
from pumice.backend.step import Batch, Pending, Step
from pumice.engine import Engine, Preparer, Request
from pumice.engine.messages import Failed
from pumice.engine.placement.programs import Pipeline, SegmentProgram
from pumice.engine.requests.reading import LogitRows, with_future
from pumice.graph import Segment, Tensor
from pumice_numpy import NumpyBackend
from pumice_samplers import SAMPLERS

N_VOCAB = 7


class Device(Program):
    """Adds up its inputs, and adds one; a result is overwritten by the next. It writes down what it does."""

    def __init__(self, number: int, segment: Segment, log: list[str]) -> None:
        self._number = number
        self._segment = segment
        self._log = log
        self._results = {tensor.name: np.zeros((64, N_VOCAB), np.float32) for tensor in segment.outputs}
        self.fails = False
        self.capabilities = Capabilities(max_steps=1 if segment.gives_logits else 0, picks=PickLimits(4))

    def run(self, step: Step) -> Mapping[str, Any]:
        return self.submit(step).outputs()

    def submit(self, step: Step) -> Pending:
        return Begun(self, step)

    def begin(self, inputs: Mapping[str, Any], batch: Batch) -> Callable[[], Mapping[str, Any]]:
        self._log.append(f"{self._number} begins {batch.tokens[0]}")
        n = len(batch.tokens)
        total = sum(inputs[tensor.name].reshape(n, -1) for tensor in self._segment.inputs) + 1
        for result in self._results.values():
            result[:] = np.nan
        fails = self.fails

        def results() -> Mapping[str, Any]:
            self._log.append(f"{self._number} ends {batch.tokens[0]}")
            if fails:
                raise RuntimeError
            for result in self._results.values():
                result[:n] = total
            rows = {tensor.name: tensor.shape[0] for tensor in self._segment.outputs}
            return {
                name: result[batch.output_ids] if rows[name] == "n_outputs" else result[:n]
                for name, result in self._results.items()
            }

        return results

    @property
    def memory(self) -> dict[str, int]:
        return {"weights": 10 * self._number}


class Begun(Pending):
    """A step of a device: begun when its inputs are known."""

    def __init__(self, device: Device, step: Step) -> None:
        self._device, self._step = device, step
        if not step.waits:
            self.begin(step.inputs)

    def begin(self, inputs: Mapping[str, Any]) -> None:
        step = self._step.given(inputs) if self._step.waits else self._step
        self.outputs = self._device.begin(step.inputs, step.batch)  # type: ignore[method-assign]

    def tokens(self) -> Iterator[Ahead]:
        ask = self._step.ask
        assert ask is not None
        assert ask.numbers.shape == (1, len(self._step.batch.tokens))
        logits = self.outputs()["logits"][None, :, : ask.n_best]
        yield Ahead(np.zeros(logits.shape, np.int32), logits, logits[..., 0].astype(np.int32))


def pipeline(log: list[str], n: int = 3, gives_logits: bool = True) -> tuple[Pipeline, list[Device]]:
    """The first program's second result is an input of the last."""
    tokens, skip = Tensor("tokens", ("n_tokens",), "i32"), hidden("skip")
    logits = Tensor("logits", ("n_outputs", N_VOCAB))
    values = [tokens, *(hidden(f"h{i}") for i in range(n - 1)), logits]
    segments = [Segment("gpu", [], [values[i]], [values[i + 1]], device=i) for i in range(n)]
    segments[0].outputs.append(skip)
    segments[-1].inputs.append(skip)
    segments[-1].gives_logits = gives_logits
    programs = [Device(i, segment, log) for i, segment in enumerate(segments)]
    parts = [SegmentProgram(program) for program in programs]
    return Pipeline(segments, parts, lambda step: {"tokens": step.tokens}), programs


def hidden(name: str) -> Tensor:
    return Tensor(name, ("n_tokens", N_VOCAB))


def step(first: int, n_tokens: int = 4, wanted: bool = False) -> Batch:
    made = batch([n_tokens])
    made.tokens += first
    made.output_ids = np.array([n_tokens - 1] if wanted else [], np.int32)
    return made


def run(made: Pipeline, batch: Batch) -> np.ndarray:
    return np.array(made.run(Step(batch, {"tokens": batch.tokens}))["logits"])


def expected(batch: Batch, n: int = 3) -> np.ndarray:
    """Each program adds one; what the first gives is added again by the last."""
    last = batch.tokens[batch.output_ids]
    return np.repeat((last + n + last + 1)[:, None], N_VOCAB, axis=1).astype(np.float32)


def test_devices_compute_steps_of_a_prompt_at_the_same_time() -> None:
    log: list[str] = []
    made, _ = pipeline(log, n=2)
    assert run(made, step(10)).shape == run(made, step(20)).shape == (0, N_VOCAB)
    np.testing.assert_array_equal(run(made, step(30, wanted=True)), expected(step(30, wanted=True), 2))
    begun = ["0 begins 10", "0 ends 10", "1 begins 10", "0 begins 20", "0 ends 20", "1 ends 10", "1 begins 20"]
    assert log == [*begun, "0 begins 30", "0 ends 30", "1 ends 20", "1 begins 30", "1 ends 30"]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_steps_do_not_mix(n: int) -> None:
    log: list[str] = []
    made, _ = pipeline(log, n)
    for first in range(10, 90, 10):
        wanted = first % 40 == 0
        found = run(made, step(first, wanted=wanted))
        np.testing.assert_array_equal(found, expected(step(first, wanted=wanted), n))
    for number in range(n):
        mine = [line.split()[1:] for line in log if line.startswith(f"{number} ")]
        firsts = range(10, 90, 10)
        assert mine == [words for first in firsts for words in (["begins", str(first)], ["ends", str(first)])]


def test_a_failure_takes_with_it_what_was_let_go_and_says_so() -> None:
    log: list[str] = []
    made, programs = pipeline(log)
    programs[1].fails = True
    run(made, step(10))
    run(made, step(20))
    with pytest.raises(RuntimeError):
        run(made, step(30))
    assert made.lost
    programs[1].fails = False
    np.testing.assert_array_equal(run(made, step(40, wanted=True)), expected(step(40, wanted=True)))
    assert not made.lost
    programs[0].fails = True
    with pytest.raises(RuntimeError):
        run(made, step(50))
    assert not made.lost
    programs[0].fails, programs[1].fails = False, True
    run(made, step(60))
    with pytest.raises(RuntimeError):
        picked(made, step(70, wanted=True), Ask([Pick(1)], np.zeros((1, 1), np.float32), 4))
    assert made.lost


def test_the_last_program_picks_and_the_first_goes_on() -> None:
    log: list[str] = []
    made, _ = pipeline(log, 2)
    run(made, step(10))
    first = step(3, n_tokens=2)
    first.output_ids = np.arange(2, dtype=np.int32)
    ask = Ask([Pick(1)] * 2, np.zeros((3, 2), np.float32), 4)
    found = list(made.submit(step_of(first, ask)).tokens())
    assert [each.picked.tolist() for each in found] == [[[9, 11]], [[21, 25]], [[45, 53]]]  # 2 x + 3
    assert {each.ids.shape for each in found} == {each.logits.shape for each in found} == {(1, 2, 4)}
    assert next(made.submit(step_of(first, ask)).tokens()).picked.tolist() == [[9, 11]]
    assert log.pop() == "0 begins 9", "it goes on while the host looks at the token"
    assert [line for line in log[:-4] if line.startswith("0 begins")] == [f"0 begins {n}" for n in (10, 3, 9, 21)]
    assert made.capabilities.max_steps > 1
    assert made.capabilities.picks.best == 4
    assert made.memory == {"weights": 10}


def test_steps_of_the_next_token_share_the_arrays_of_those_before() -> None:
    """As long as their batches differ in tokens and positions only: programs then upload nothing else."""
    made, devices = pipeline([])
    submit, tables = devices[1].submit, []

    def noted(step: Step) -> Any:
        tables.append(step.batch.block_tables)
        return submit(step)

    devices[1].submit = noted  # type: ignore[method-assign]
    ask = Ask([Pick(1)], np.zeros((2, 1), np.float32), 4)
    for position in (40, 42):
        list(made.submit(step_of(batch([1], [position]), ask)).tokens())
    assert all(item is tables[0] for item in tables)
    longer = batch([1], [44])
    longer.block_tables = {0: np.append(longer.block_tables[0], [[9]], axis=1)}
    list(made.submit(step_of(longer, ask)).tokens())
    assert tables[-1] is longer.block_tables


def test_a_load_that_fails_half_way_closes_what_it_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Faulty(NumpyBackend):
        def free_memory(self) -> list[int | None]:
            log.append("open")
            return [None, None]

        def compile(self, segment: Any, plan: Any, limits: Any) -> Program:
            if segment.device:
                raise pumice.BackendError("no memory")
            program = super().compile(segment, plan, limits)
            program.close = lambda: log.append("program closed")  # type: ignore[method-assign]
            return program

        def close(self) -> None:
            log.append("closed")

    before = threading.active_count()
    monkeypatch.setattr("pumice.gguf.GGUFFile.close", lambda file: log.append("file closed"))
    with pytest.raises(pumice.BackendError, match="no memory"):
        pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend="tried", plugins=[passed("backends", tried=Faulty)])
    assert log[-3:] == ["program closed", "closed", "file closed"]
    assert set(log[:-3]) == {"open"}
    assert threading.active_count() <= before


@pytest.fixture
def failures() -> list[Exception]:
    """Return the exceptions that the second device of ``failing`` raises next."""
    return []


@pytest.fixture
def failing(tmp_path: Path, failures: list[Exception]) -> Iterator[pumice.Model]:
    """A model on two devices."""

    class Two(NumpyBackend):
        def free_memory(self) -> list[int | None]:
            return [None, None]

        def compile(self, segment: Any, plan: Any, limits: Any) -> Program:
            program = super().compile(segment, plan, limits)
            run = program.run

            def running(step: Step) -> Mapping[str, Any]:
                if segment.device and failures:
                    raise failures.pop()
                return run(step)

            program.run = running  # type: ignore[method-assign]
            return program

    path = tiny_llama(tmp_path / "tiny.gguf")
    with pumice.load(path, backend="tried", plugins=[passed("backends", tried=Two)], n_batch=32, n_parallel=2) as model:
        yield model


PROMPT = [(7 * i) % 250 + 3 for i in range(100)]


def test_nothing_is_kept_of_a_prompt_that_was_lost(
    tmp_path: Path, failing: pumice.Model, failures: list[Exception]
) -> None:
    """Its first blocks were published when the first device had computed them."""
    with pumice.load(tmp_path / "tiny.gguf", backend="numpy") as model:
        expected = model.generate(PROMPT, max_tokens=9, temperature=0).tokens
    failures.append(MemoryError("no more"))
    with pytest.raises(MemoryError):
        failing.generate(PROMPT, max_tokens=9, temperature=0)
    assert failing.generate(PROMPT, max_tokens=9, temperature=0).tokens == expected


def test_a_step_lost_by_a_call_for_logits_fails_its_sequence(failing: pumice.Model, failures: list[Exception]) -> None:
    def turns(engine: Engine) -> Generator[None, None, int]:
        """A prompt of which a step was let go, when somebody asks for logits."""
        prepare = Preparer(engine.limits.n_ctx, failing.n_vocab, lambda: None, SAMPLERS, list(SAMPLERS))
        (generation,) = prepare.generations([0], Request(PROMPT, 9))
        yield
        engine.add(generation)
        engine.step()
        assert not [event for event in engine.drain() if isinstance(event, Failed)]
        failures.append(MemoryError("no more"))
        future: Future[list[Any]] = Future()
        reading = with_future(-1, future)
        LogitRows(reading, range(3), tokens=[1, 2, 3])
        engine.read(reading)
        while not future.done():
            engine.step()
        with pytest.raises(MemoryError):
            future.result()
        assert [event.id for event in engine.drain() if isinstance(event, Failed)] == [0]
        assert not engine.busy
        return engine.snapshot().n_slots_free

    assert failing.engine.thread.call(turns) == 2
