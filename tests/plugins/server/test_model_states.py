"""The states of served models: any order of loads, evictions, crashes, errors of memory, and clients that leave."""

import asyncio
import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from starlette.exceptions import HTTPException

import pumice
from pumice.plugin.unstable import ModelSpec
from pumice_server.models import model_loading
from pumice_server.models.served_model import FOREVER, TRANSITIONS, ServedModel, State
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings

NAMES = "abcd"
TIMEOUT = 30.0  # of requests: a request that waits for room in vain
ROOM = 2  # models that are loaded at once


class Model:
    """What a server knows of a loaded model."""

    def __init__(self, name: str) -> None:
        self.name, self.is_closed = name, False
        self.engine = SimpleNamespace(error=None)
        self.memory = {"weights": 10}

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class FakeService:
    """A service without tokens, templates and an engine."""

    assumed_template = None

    def __init__(self, model: Model, *_: object) -> None:
        self.model = model


class Server:
    """Served models whose loads end when, and as, a test says, in a loop that goes on until nothing happens."""

    def __init__(self, **options: Any) -> None:
        self.opened: list[Model] = []
        self.loads: dict[str, asyncio.Future[Model]] = {}
        self.told: dict[str, int] = {}
        self.loop = asyncio.new_event_loop()
        self._patches = pytest.MonkeyPatch()
        patch = self._patches.setattr
        patch(model_loading, "ModelService", FakeService)
        patch(model_loading, "Service", FakeService)
        patch(ServedModel, "scales_of", lambda self, model: {})
        patch(model_loading, "_in_thread", self._load)
        patch(model_loading, "properties", lambda *_: {})
        patch(model_loading, "capabilities", lambda *_: [])
        patch(model_loading, "_collect_unloaded", lambda: None)
        patch(model_loading, "_freeze_loaded", lambda: None)
        patch(model_loading, "_warn_of_missing_packages", lambda _: None)
        patch(Model, "summary", None, raising=False)
        specs = [ModelSpec([name], f"{name}.gguf") for name in NAMES]
        self.models = Models(specs, lambda *_: None, Settings(**options))

    async def _load(self, load: Any, spec: ModelSpec, *_: Any) -> Model:
        loaded = [served_model.service.model for served_model in self.models.served_models if served_model.service]
        left = [model for model in self.opened if not (model.is_closed or model.engine.error or model in loaded)]
        assert left == [], "a model loads while another has its memory"
        self.loads[spec.names[0]] = asyncio.get_running_loop().create_future()
        return await self.loads[spec.names[0]]

    def end_load(self, name: str, error: Exception | None = None) -> None:
        load = self.loads.pop(name)
        if error:
            load.set_exception(error)
        else:
            self.opened.append(Model(name))
            load.set_result(self.opened[-1])

    def settle(self) -> None:
        """Let the loop run until nothing leaves memory and nothing else happens."""

        async def run() -> None:
            limit = time.monotonic() + 20
            n_quiet = 0
            while n_quiet < 5:
                await asyncio.sleep(0)
                n_quiet = 0 if self.models._leaving else n_quiet + 1
                if self.models._leaving:
                    await asyncio.sleep(0.0005)
                assert time.monotonic() < limit, "a model never leaves memory"

        self.loop.run_until_complete(run())

    def close(self) -> None:
        self.loop.run_until_complete(self.models.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self._patches.undo()
        self.loop.close()


class Request:
    """A request in a task of its own, which uses its model until it is told to end."""

    def __init__(self, server: Server, served_model: ServedModel) -> None:
        self.served_model = served_model
        self.model: Model | None = None
        self.error: Exception | None = None
        self._ended = asyncio.Event()
        self._models = server.models
        self.task = server.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._models.using(self.served_model) as service:
                self.model = service.model
                assert service.model.engine.error is None
                await self._ended.wait()
        except (HTTPException, pumice.PumiceError) as error:
            self.error = error

    def end(self) -> None:
        self._ended.set()

    def leave(self) -> None:
        """End it as the server does when its client has left."""
        self.task.cancel()

    @property
    def is_waiting(self) -> bool:
        return not self.task.done() and self.model is None


names = strategies.sampled_from(NAMES)
ERRORS = [pumice.BackendError("no device matches 7"), pumice.OutOfMemoryError("no memory"), pumice.EngineKilledError()]


class ModelStates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server(max_models=ROOM, timeout=TIMEOUT)
        self.models = self.server.models
        self.requests: list[Request] = []
        self.n_faults = dict.fromkeys(NAMES, 0)  # loads that failed for their own reasons, and crashes

    def served(self, name: str) -> ServedModel:
        return self.models.known(name)

    @rule(name=names)
    def ask(self, name: str) -> None:
        self.requests.append(Request(self.server, self.served(name)))
        self.server.settle()

    @precondition(lambda self: any(not request.task.done() for request in self.requests))
    @rule(data=strategies.data(), leaves=strategies.booleans())
    def end(self, data: Any, leaves: bool) -> None:
        request = data.draw(strategies.sampled_from([r for r in self.requests if not r.task.done()]))
        request.leave() if leaves or request.is_waiting else request.end()
        self.server.settle()
        assert request.task.done()

    @precondition(lambda self: self.server.loads)
    @rule(error=strategies.sampled_from([None, None, *ERRORS]), leaves_first=strategies.booleans())
    def end_load(self, error: Exception | None, leaves_first: bool) -> None:
        (name,) = self.server.loads
        beside = [other for other in self.models.served_models if other.service]
        waiting = [r for r in self.requests if r.is_waiting and r.served_model.name == name]
        is_own = error is not None and (type(error) is pumice.BackendError or not beside)
        was_too_large = self.served(name).is_too_large
        if leaves_first and waiting:
            waiting.pop().leave()
        self.server.end_load(name, error)
        self.server.settle()
        if is_own or (error and was_too_large):
            self.n_faults[name] += 1
            assert all(r.error is error for r in waiting), "each request gets the error of its load"
            assert [other for other in self.models.served_models if other.service] == beside, "nothing was evicted"

    @rule(name=names)
    def unload(self, name: str) -> None:
        served_model = self.served(name)
        unloading = self.server.loop.create_task(self.models.unload(served_model))
        is_used = served_model.n_waiting or served_model.state in (State.BUSY, State.LOADING)
        self.server.settle()
        if is_used:
            assert unloading.exception().status_code == 409
        else:
            unloading.result()
            assert served_model.state in (State.ABSENT, State.FAILED)

    @rule(name=names)
    def load(self, name: str) -> None:
        async def load() -> None:
            self.models.load(self.served(name))

        with contextlib.suppress(HTTPException):
            self.server.loop.run_until_complete(load())
        self.server.settle()

    @rule(name=names)
    def crash(self, name: str) -> None:
        served_model = self.served(name)
        if served_model.service:
            served_model.service.model.engine.error = pumice.EngineDiedError("ended by SIGSEGV")
            self.n_faults[name] += 1
            self.look()

    @rule()
    def sleep(self) -> None:
        """Let idle models sleep."""
        for served_model in self.models.served_models:
            served_model.keep_alive = -1.0
        self.look()
        for served_model in self.models.served_models:
            served_model.keep_alive = FOREVER
            assert served_model.state is not State.READY

    @rule()
    def look(self) -> None:
        self.server.loop.run_until_complete(self.models._look())
        self.server.settle()

    @rule(name=names)
    def forgive(self, name: str) -> None:
        """Let the time until the next load pass."""
        self.served(name)._retry_at = 0.0
        self.look()

    @invariant()
    def counts_are_those_of_the_requests(self) -> None:
        for served_model in self.models.served_models:
            own = [r for r in self.requests if r.served_model is served_model and not r.task.done()]
            using = [r for r in own if r.model and served_model.service and r.model is served_model.service.model]
            assert served_model.n_waiting == sum(r.is_waiting for r in own) + self.n_holding(served_model)
            assert served_model.n_users == len(using)
            assert (served_model.state is State.BUSY) == bool(using)
            assert (served_model.state in (State.READY, State.BUSY)) == (served_model.service is not None)
            assert (served_model.state is State.LOADING) == (served_model.loading is not None)

    def n_holding(self, served_model: ServedModel) -> int:
        """Loads that `/models/load` began."""
        n_own = sum(r.is_waiting for r in self.requests if r.served_model is served_model)
        return served_model.n_waiting - n_own if self.models._tasks else 0

    @invariant()
    def memory_is_bounded(self) -> None:
        loaded = [served_model.service.model for served_model in self.models.served_models if served_model.service]
        alive = [model for model in self.server.opened if not (model.is_closed or model.engine.error)]
        assert alive == sorted(loaded, key=self.server.opened.index)
        assert len(loaded) + len(self.server.loads) <= ROOM
        assert len(self.server.loads) <= 1

    @invariant()
    def what_is_used_is_open(self) -> None:
        for request in self.requests:
            if request.model and not request.task.done() and not request.model.engine.error:
                assert not request.model.is_closed

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        if not self.server.loads:
            for served_model in self.models.served_models:
                if served_model.n_waiting and not served_model.wait_seconds:
                    assert self.models._to_evict(served_model) is None, "there is room, and nothing happens"

    @invariant()
    def only_faults_are_counted(self) -> None:
        for name in NAMES:
            counter = self.models.metrics._crashes.labels(name)
            assert counter._value.get() == self.n_faults[name]
            if self.served(name).state is State.FAILED:
                assert self.n_faults[name]

    def teardown(self) -> None:
        self.server.close()
        assert all(model.is_closed for model in self.server.opened)
        assert all(request.task.done() or request.model for request in self.requests)


def test_the_documentation_has_every_change() -> None:
    page = (Path(__file__).parents[3] / "docs/server.md").read_text()
    for state in State:
        row = next(line for line in page.splitlines() if line.startswith(f"| {state} |"))
        told = {f"{change}: {after}" for (before, change), after in TRANSITIONS.items() if before is state}
        assert set(row.split(" | ")[-1].removesuffix(" |").split("; ")) == told


TestModelStates = ModelStates.TestCase
TestModelStates.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_no_room_is_told_with_what_to_do() -> None:
    server = Server(max_models=1, timeout=0.05)
    try:
        busy, other = (Request(server, server.models.known(name)) for name in "ab")
        server.settle()
        server.end_load("a")
        server.loop.run_until_complete(other.task)
        assert (other.error.status_code, other.served_model.state) == (503, State.ABSENT)
        told = "there is no room for b beside other models (--models-max is 1); in use: a; try again once one is idle"
        assert other.error.detail.startswith(told)
        with pytest.raises(HTTPException, match="no room for b"):
            server.models.load(other.served_model)
        assert server.models.metrics._crashes.labels("b")._value.get() == 0
        busy.end()
        server.settle()
    finally:
        server.close()
