"""Requests of every kind in any order in one engine: each ends once, as it does alone, and nothing is lost.

The engine's thread computes a step only when the machine lets it (``paced``), so an example takes the same turns each
time. ``PUMICE_MACHINE_EXAMPLES`` is the number of examples (default: 200).
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pumice
from gguf_files import byte_tokenizer, tiny_llama
from paced import BACKEND, HANGS, Pace
from pumice.engine import EngineClient
from pumice.engine.messages import Encode, Event, Failed, Finished, Output, SavePrompt, Score, Snapshot, Terms
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer
from pumice.grammar import ReasoningBudget
from tiny_zoo import ZOO

EXAMPLES = int(os.environ.get("PUMICE_MACHINE_EXAMPLES", "200"))
N_VOCAB = 300
MOST_STEPS = 3000  # of an example's requests, which need a few hundred
CLOSE = {"rtol": 2e-4, "atol": 2e-4}  # values of a row depend on the number of rows in a step
INJECTED = "injected by the test"
SETTLES = 5.0  # seconds after which an end that the engine has counted has arrived everywhere
TIMEOUTS = {False: 600.0, True: 1e-6}  # seconds; late requests have no time left before their first step

contexts = st.sampled_from([128, 160, 256])  # 4, 5 and 8 blocks
lengths = st.sampled_from([1, 2, 5, 31, 33, 64, 90, 120, 128, 158, 200, 254, 256])
prompts = st.tuples(st.integers(0, 2), lengths)
salts = st.sampled_from(["", "", "", "a", "\ud800"])
adapters = st.sampled_from([None, None, None, 1.0])
poolings = st.sampled_from(["mean", "last", "cls", "none"])
lates = st.sampled_from([False, False, False, True])
priorities = st.integers(-1, 1)


def tokens_of(prompt: tuple[int, int]) -> list[int]:
    """Return the token ids of one of three texts that share a beginning."""
    seed, n = prompt
    shared = np.random.default_rng(9).integers(3, N_VOCAB, 40).tolist()
    own = np.random.default_rng(seed).integers(3, N_VOCAB, 256).tolist()
    return (shared + own)[:n] if seed else own[:n]


@dataclass(frozen=True)
class Work:
    """What is asked of a model: equal work has equal results."""

    kind: str
    prompt: tuple[int, int]
    more: tuple[tuple[int, int], ...] = ()  # further texts
    pooling: str = ""
    n_top: int = 0
    max_tokens: int = 0
    logprobs: int | None = None
    form: str = ""
    adapter: float | None = None

    @property
    def longest(self) -> int:
        return max(n for _, n in (self.prompt, *self.more))

    @property
    def adapters(self) -> dict[str, float] | None:
        return None if self.adapter is None else {"own": self.adapter}


FORMS: dict[str, dict[str, Any]] = {
    "": {},
    "schema": {"json_schema": {"enum": ["yes", "no", "maybe so"]}, "ignore_eos": False},
    "grammar": {"grammar": "root ::= [ab]+", "ignore_eos": False},
    "ends": {"ignore_eos": False, "stop": ["w3"]},
}


@dataclass(eq=False)
class Asked:
    """A request on its way, and what came of it."""

    work: Work
    began: int  # failed runs before it
    is_late: bool = False  # ends by its timeout
    is_bad: bool = False  # may be refused
    is_cancelled: bool = False
    cancel: Callable[[], object] = lambda: None  # returns False if it is too late
    ends: list[Any] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    failed_by: int = 0  # failed runs when it ended


class Alone:
    """A model that computes one request at a time, and remembers the results."""

    def __init__(self, path: Path, adapter: Path) -> None:
        self._load = cache(
            lambda n_ctx: pumice.load(
                path, backend="numpy", kv_type="f32", n_ctx=n_ctx, n_parallel=1, speculate="off",
                config={"adapters": {"own": {"file": str(adapter), "scale": 0.0}}},
            )
        )  # fmt: skip
        self._known: dict[tuple[int, Work], Any] = {}

    def result(self, n_ctx: int, work: Work) -> Any:
        if (n_ctx, work) not in self._known:
            self._known[n_ctx, work] = _alone(self._load(n_ctx), work)
        return self._known[n_ctx, work]


def _alone(model: pumice.Model, work: Work) -> Any:
    ids = tokens_of(work.prompt)
    if work.kind == "generate":
        return model.generate(ids, **options_of(work))
    if work.kind == "encode":
        texts = [tokens_of(prompt) for prompt in (work.prompt, *work.more)]
        return model.embed(texts, pooling=work.pooling, normalize=False, adapters=work.adapters)
    if work.kind == "score":
        return model.score(ids, work.n_top, adapters=work.adapters)
    return model.logits(ids, adapters=work.adapters)


def options_of(work: Work) -> dict[str, Any]:
    ends = {"max_tokens": work.max_tokens, "temperature": 0.0, "ignore_eos": True}
    return {**ends, "logprobs": work.logprobs, "adapters": work.adapters, **FORMS[work.form]}


def write_adapter(model: Path, path: Path) -> Path:
    """Write a LoRA adapter for the queries of a model, or for what its states read."""
    rng, tensors = np.random.default_rng(1), {}
    with GGUFFile.open(model) as file:
        architecture = file.metadata["general.architecture"]
        for name, tensor in file.tensors.items():
            if name.endswith(("attn_q.weight", "ssm_in.weight")):
                rows, columns = tensor.shape
                tensors[f"{name}.lora_a"] = rng.standard_normal((2, columns)).astype(np.float32) * 0.3
                tensors[f"{name}.lora_b"] = rng.standard_normal((rows, 2)).astype(np.float32) * 0.3
    metadata = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora"}
    infos = [TensorInfo(name, GGMLType.F32, array.shape) for name, array in tensors.items()]
    with Writer(path, metadata | {"adapter.lora.alpha": 2.0}, infos) as writer:
        for array in tensors.values():
            writer.write(array)
    return path


@cache
def files(is_recurrent: bool) -> tuple[Path, Path, Alone]:
    folder = Path(tempfile.mkdtemp(prefix="pumice-machine-"))
    if is_recurrent:
        vocabulary = {f"/{key}": value for key, value in byte_tokenizer(N_VOCAB).items()}
        mamba = ZOO["mamba"]
        shapes = mamba.shapes | {"token_embd.weight": (N_VOCAB, mamba.metadata["embedding_length"])}
        mamba = replace(mamba, metadata=mamba.metadata | vocabulary, shapes=shapes)
        model = mamba.write(folder / "tiny.gguf")
    else:
        model = tiny_llama(folder / "tiny.gguf", n_layer=1, dim=32, n_ff=32, n_ctx=256, n_vocab=N_VOCAB)
    adapter = write_adapter(model, folder / "adapter.gguf")
    return model, adapter, Alone(model, adapter)


class EngineMachine(RuleBasedStateMachine):
    """Asks an engine for anything at any time."""

    has_cancelled = False

    @initialize(
        is_recurrent=st.sampled_from([False, False, True]),
        n_ctx=contexts,
        n_parallel=st.integers(1, 4),
        n_batch=st.sampled_from([8, 32, 64]),
        max_queue=st.sampled_from([-1, -1, 0, 2, 4]),
        tier=st.sampled_from(["", "", "saved", "ram"]),
        finishes=st.booleans(),
    )
    def load(
        self, is_recurrent: bool, n_ctx: int, n_parallel: int, n_batch: int, max_queue: int, tier: str, finishes: bool
    ) -> None:
        path, adapter, self.alone = files(is_recurrent)
        self.folder = tempfile.TemporaryDirectory()
        config: dict[str, Any] = {"adapters": {"own": {"file": str(adapter), "scale": 0.0}}, "max_queue": max_queue}
        config |= {"cache_saved": self.folder.name} if tier == "saved" else {}
        config |= {"cache_ram": 1} if tier == "ram" else {}
        self.pace = Pace()
        self.model = pumice.load(
            path, backend=BACKEND, plugins=[self.pace.plugin()], kv_type="f32", n_ctx=n_ctx, n_parallel=n_parallel,
            n_batch=n_batch, speculate="off", prefill_tokens=n_batch, config=config,
        )  # fmt: skip
        self.client: EngineClient = self.model.engine.client
        self.n_ctx, self.max_queue = n_ctx, self.model.config.max_queue
        self.asked: list[Asked] = []
        self.finishes = finishes  # before it is closed
        before = self.client.inspect().result(HANGS)
        self.n_parallel, self.before = before.n_slots, before.n_steps
        self.runs_before = self.pace.n_runs
        self.pace.stop()

    # --- requests

    @rule(
        prompt=prompts,
        max_tokens=st.sampled_from([1, 2, 8, 24, 300]),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        logprobs=st.sampled_from([None, None, 0, 2]),
        form=st.sampled_from(["", "", *FORMS]),
        adapter=adapters,
        salt=salts,
        priority=priorities,
        late=lates,
        budget=st.sampled_from([None, None, 0, 5]),
    )
    def generate(self, prompt, max_tokens, n, logprobs, form, adapter, salt, priority, late, budget) -> None:
        work = Work("generate", prompt, max_tokens=max_tokens, logprobs=logprobs, form=form, adapter=adapter)
        asked = [self._asked(work, salt, is_late=late) for _ in range(n)]

        def send() -> None:
            more = {"cache_salt": salt, "priority": priority, "timeout": TIMEOUTS[late], "n": n}
            request = self.model.request(tokens_of(prompt), **options_of(work), **more)
            if budget is not None:  # of reasoning that never begins
                request = replace(request, budget=ReasoningBudget(budget, [5], "<never begun>", "</never begun>"))
            ids = self.client.add(request, *(self._listener(one) for one in asked))
            for one, id in zip(asked, ids, strict=True):
                one.cancel = lambda id=id: self.client.cancel(id)

        self._send(asked, send)

    @rule(
        texts=st.lists(prompts, min_size=1, max_size=4), pooling=poolings, adapter=adapters, late=lates,
        priority=priorities,
    )  # fmt: skip
    def encode(self, texts, pooling, adapter, late, priority=0) -> None:
        work = Work("encode", texts[0], tuple(texts[1:]), pooling=pooling, adapter=adapter)
        ids = [tokens_of(text) for text in texts]
        self._ask(self._asked(work, is_late=late), priority, Encode, ids, pooling, adapters=work.adapters)

    @rule(
        prompt=prompts, n_top=st.sampled_from([0, 2]), adapter=adapters, salt=salts, late=lates, priority=priorities,
    )  # fmt: skip
    def score(self, prompt, n_top, adapter, salt, late, priority=0) -> None:
        work = Work("score", prompt, n_top=n_top, adapter=adapter)
        if len(ids := tokens_of(prompt)) > 1:
            self._ask(self._asked(work, salt, late), priority, Score, ids, n_top, work.adapters, salt)

    @rule(prompt=prompts, adapter=adapters, late=lates)
    def logits(self, prompt, adapter, late) -> None:
        asked = self._asked(Work("logits", prompt, adapter=adapter), is_late=late)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # cannot be cancelled

        def compute() -> None:
            try:
                future.set_result(self._logits(asked))
            except BaseException as error:
                future.set_exception(error)

        def send() -> None:
            thread = threading.Thread(target=compute, daemon=True)
            thread.start()
            _until_it_waits(thread)
            self._follow(asked, future)

        self._send([asked], send)

    @rule(prompt=prompts, salt=salts, late=lates)
    def save(self, prompt, salt, late) -> None:
        self._ask(self._asked(Work("save", prompt), salt, late), 0, SavePrompt, tokens_of(prompt), {}, salt)

    @rule(which=st.integers(0, 63))
    def cancel(self, which: int) -> None:
        self.has_cancelled = True
        if going := self._going:
            asked = going[which % len(going)]
            asked.is_cancelled |= asked.cancel() is not False

    @rule(which=st.integers(0, 63))
    def end_reasoning(self, which: int) -> None:
        self.client.end_reasoning(which)

    # --- the engine

    @rule(n=st.integers(1, 12))
    def steps(self, n: int) -> None:
        """Let the engine compute some steps, and look at it after each."""
        for _ in range(n):
            if not self._going:
                return
            self._look()

    @rule()
    def fail_a_step(self) -> None:
        if self._going:
            self.pace.error = pumice.BackendError(INJECTED)
            self._look()

    @rule()
    def finish(self) -> None:
        """Let the engine compute until everything has ended: then nothing is held."""
        for _ in range(MOST_STEPS):
            if not self._going:
                break
            self._look()
        assert not self._going, f"after {MOST_STEPS} steps these have not ended: {self._going}"
        for _ in range(100):  # what was cancelled may end after its answer
            now = self._look()
            if now.n_slots_free == now.n_slots and now.n_blocks_free == now.n_blocks:
                break
        assert (now.n_running, now.n_waiting, now.n_slots_free) == (0, 0, self.n_parallel), now
        assert now.n_blocks_free == now.n_blocks, f"blocks are lost: {now}"

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        try:
            is_checked = sys.exc_info()[0] is None
            if is_checked and self.finishes:
                self.finish()
                self._check_all()
            going = self._going
            for asked in going:
                asked.is_cancelled = True
            self._close()
            if is_checked:
                with self.pace.changed:
                    ended = self.pace.changed.wait_for(lambda: not self._going, HANGS)
                assert ended, f"closing does not end {self._going}"
                self._check_all()
        finally:
            self.folder.cleanup()

    def _close(self) -> None:
        self.pace.open()
        closing = threading.Thread(target=self.model.close, daemon=True)
        closing.start()
        closing.join(HANGS)
        assert not closing.is_alive(), f"closing takes longer than {HANGS:.0f} s"

    @invariant()
    def results_are_those_alone(self) -> None:
        if hasattr(self, "asked"):
            self._check_all()

    @invariant()
    def the_queue_is_within_its_limit(self) -> None:
        """A thread that asks for logits gets their end some time after the engine has counted it."""
        if hasattr(self, "asked") and self.max_queue >= 0:
            most = self.n_parallel + self.max_queue
            with self.pace.changed:
                is_within = self.pace.changed.wait_for(lambda: self._n_accepted <= most, SETTLES)
            assert is_within, f"{self._n_accepted} requests were accepted: {self._going}"

    # --- parts of rules

    @property
    def _n_accepted(self) -> int:
        return len([asked for asked in self._going if not asked.is_cancelled])

    @property
    def _going(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.ends]

    def _asked(self, work: Work, salt: str = "", is_late: bool = False) -> Asked:
        is_bad = salt == "\ud800" or work.longest > self.n_ctx
        return Asked(work, self.pace.n_failed, is_late, is_bad)

    def _logits(self, asked: Asked) -> Any:
        ids, work = tokens_of(asked.work.prompt), asked.work
        return self.model.logits(ids, adapters=work.adapters, timeout=TIMEOUTS[asked.is_late])

    def _ask(self, asked: Asked, priority: int, question: Callable[..., Any], *args: Any, **more: Any) -> None:
        more["terms"] = Terms(priority, TIMEOUTS[asked.is_late])
        self._send([asked], lambda: self._follow(asked, self.client.ask(question, *args, **more)))

    def _send(self, asked: Sequence[Asked], send: Callable[[], None]) -> None:
        """Send a request, which may be refused."""
        going, new = self._going, asked
        if asked[0].work.longest > self.n_ctx and asked[0].work.kind not in ("generate", "logits"):
            return  # a client checks no lengths
        try:
            send()
        except pumice.QueueFullError:
            n_texts = sum(1 + len(one.work.more) for one in [*going, *new])
            # Cancelled requests wait until the engine takes the command.
            assert self.max_queue >= 0
            assert self.max_queue < n_texts or self.has_cancelled, f"{going} fill a queue of {self.max_queue}"
        except pumice.RequestError:
            assert new[0].is_bad, "a good request is refused"
        else:
            self.asked += new
            self.pace.settle(lambda: not self._going)

    def _listener(self, asked: Asked) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if isinstance(event, Output):
                asked.tokens += event.tokens
                asked.text += "".join(event.texts)
                asked.logprobs += event.logprobs or []
            elif isinstance(event, Finished):
                asked.text += event.text
            if isinstance(event, (Finished, Failed)):
                self._ended(asked, event)

        return listen

    def _follow(self, asked: Asked, future: Future[Any]) -> None:
        asked.cancel = future.cancel

        def done(future: Future[Any]) -> None:
            failure = pumice.RequestError("cancelled") if future.cancelled() else future.exception()
            self._ended(asked, Failed(0, failure) if failure else future.result())

        future.add_done_callback(done)

    def _ended(self, asked: Asked, end: Any) -> None:
        with self.pace.changed:
            asked.ends.append(end)
            asked.failed_by = self.pace.n_failed
            self.pace.changed.notify_all()

    def _look(self) -> Snapshot:
        """Let the engine compute until it tells its state, one step unless it is busy otherwise; check the state."""
        state = self.client.inspect()

        def told() -> None:
            with self.pace.changed:
                self.pace.changed.notify_all()

        state.add_done_callback(lambda _: told())
        for _ in range(64):
            if not self.pace.settle(lambda: state.done()):
                break
            self.pace.step(lambda: state.done())
            if state.done():
                break
        self.pace.settle(lambda: not self._going)
        assert state.done(), "the engine does not tell its state in 64 steps"
        now = state.result()
        assert 0 <= now.n_slots_free <= now.n_slots == self.n_parallel, now
        assert now.n_running <= now.n_slots, now
        if self.max_queue >= 0:
            assert now.n_waiting + now.n_running + now.n_reading <= now.n_slots + self.max_queue, now
        for window, n in now.n_blocks.items():
            assert 0 <= now.n_blocks_free[window] <= n, now
        n_runs = self.pace.n_runs - self.runs_before
        assert now.n_steps - self.before <= n_runs, f"{now.n_steps - self.before} steps, but {n_runs} runs of programs"
        return now

    def _check_all(self) -> None:
        for asked in self.asked:
            assert len(asked.ends) <= 1, f"{asked.work} ends {len(asked.ends)} times: {asked.ends}"
            if asked.ends:
                self._check(asked, asked.ends[0])
        self.asked = self._going

    def _check(self, asked: Asked, end: Any) -> None:
        work = asked.work
        if isinstance(end, Failed):
            is_injected = INJECTED in str(end.error) and asked.failed_by > asked.began
            is_refused = isinstance(end.error, pumice.RequestError) and (asked.is_bad or asked.is_cancelled)
            is_refused |= isinstance(end.error, pumice.QueueFullError) and self.max_queue >= 0 and work.kind == "logits"
            is_refused |= isinstance(end.error, pumice.RequestTimeoutError) and asked.is_late
            assert is_injected or is_refused, f"{work} failed: {end.error!r}"
            return
        is_timeout = work.kind == "generate" and end.reason == "timeout" and not asked.tokens
        assert is_timeout or asked.is_cancelled or not asked.is_late, f"{work} does not end by its timeout"
        if work.kind == "save":
            assert 0 <= end <= work.longest, f"{end} tokens of {work} are saved"
            return
        expected = self.alone.result(self.n_ctx, work)
        if work.kind == "generate":
            self._check_text(asked, end, expected)
        elif work.kind == "score":
            _compare_logprobs(end, expected)
        elif work.kind == "encode":
            for row, other in zip(end, expected, strict=True):
                np.testing.assert_allclose(row, other, **CLOSE, err_msg=str(work))
        else:
            np.testing.assert_allclose(end, expected, **CLOSE, err_msg=str(work))

    def _check_text(self, asked: Asked, end: Finished, expected: pumice.Completion) -> None:
        is_cut = (end.reason == "cancelled" and asked.is_cancelled) or (end.reason == "timeout" and asked.is_late)
        n = len(asked.tokens)
        assert asked.tokens == expected.tokens[:n], f"{asked.work} gives other tokens than alone"
        if not is_cut:
            assert (end.reason, n) == (expected.finish_reason, len(expected.tokens)), asked.work
            assert asked.text == expected.text, asked.work
        if asked.work.logprobs is not None:
            _compare_logprobs(asked.logprobs, (expected.logprobs or [])[:n])


def _compare_logprobs(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logprob, other.logprob, **CLOSE)
        np.testing.assert_allclose([p for _, p in one.top], [p for _, p in other.top], **CLOSE)


def _until_it_waits(thread: threading.Thread) -> None:
    """Wait until a thread has sent its request: it waits for the answer, or has ended."""
    deadline = time.monotonic() + HANGS
    while thread.is_alive() and time.monotonic() < deadline:
        frame = sys._current_frames().get(thread.ident or 0)
        if frame and frame.f_code.co_name == "wait" and frame.f_code.co_filename == threading.__file__:
            return
        time.sleep(0.0005)


@pytest.fixture(autouse=True, scope="module")
def closed_references() -> Iterator[None]:
    yield
    files.cache_clear()


EngineMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestEngine = EngineMachine.TestCase
