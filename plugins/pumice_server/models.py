"""The models that are served: loaded when they are first asked for, kept while there is room, again after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, InvalidStateError

from starlette.exceptions import HTTPException
from starlette.requests import Request

import pumice
from pumice.cli.options import warn_of_assumed_template
from pumice_server.entry import Entry, Load, Spec
from pumice_server.metrics import Metrics
from pumice_server.properties import properties
from pumice_server.pulls import Pulls
from pumice_server.service import AnyModel, Service
from pumice_server.settings import Settings
from pumice_server.summaries import capabilities
from pumice_server.work import waiting

_LOOK_SECONDS = 0.5  # between two looks for engines that died, and models that nobody used for long
_STALL_SECONDS = 120.0  # of a step; an engine that takes longer is killed


logger = logging.getLogger("pumice")


class Models:
    """Used by the event loop alone."""

    def __init__(self, specs: Sequence[Spec], load: Load, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.draining = False
        self.started = int(time.time())
        self.pulls = Pulls()
        self.entries = [Entry(spec, settings.keep_alive) for spec in specs]
        self.loop: asyncio.AbstractEventLoop | None = None
        self._load_model = load
        self._turn = asyncio.Lock()  # one model is loaded at a time, so that what is free is known
        self._freed = asyncio.Event()  # somebody stopped using a model

    @classmethod
    def of(cls, model: AnyModel, names: Sequence[str], settings: Settings) -> Models:
        """One model that is loaded already, and is not closed here."""

        def load(*_: object) -> AnyModel:
            return model

        models = cls([Spec(names, "")], load, settings)
        models._take(models.entries[0], model, 0.0)
        return models

    # --- names

    @property
    def single(self) -> Entry | None:
        """The only model, if there is one: it is loaded from the start, and any name means it."""
        return self.entries[0] if len(self.entries) == 1 else None

    def find(self, name: str | None) -> Entry:
        """The entry of a name; without one the first. Raises HTTPException."""
        if self.single or not name:
            return self.entries[0]
        found = self.known(name)
        if found is None:
            served = ", ".join(entry.name for entry in self.entries)
            raise HTTPException(404, f"there is no model {name!r:.100}; served: {served}")
        return found

    def known(self, name: str) -> Entry | None:
        wanted = {name, name.removesuffix(":latest")}
        return next((entry for entry in self.entries if wanted & set(entry.names)), None)

    def add(self, spec: Spec) -> None:
        """Serve another model; one that is known by that name stays."""
        if self.known(spec.names[0]) is None:
            self.entries.append(Entry(spec, self.settings.keep_alive))

    # --- using them

    @contextlib.asynccontextmanager
    async def using(self, entry: Entry) -> AsyncIterator[Service]:
        """The service of a model, which is loaded if it is not, and not unloaded while it is used.

        Raises HTTPException where it cannot be had now, and what loading raises.
        """
        entry.n_users += 1
        self.loop = asyncio.get_running_loop()
        try:
            yield await self._ready(entry)
        finally:
            entry.n_users -= 1
            entry.last_used = time.monotonic()
            self._freed.set()

    async def unload(self, entry: Entry) -> None:
        """Give its memory back. Raises HTTPException if it is busy, or is asked for before it is unloaded."""
        entry.check_unused()
        if service := entry.service:
            told = None
            try:
                told = await waiting(properties, entry, service, self.settings)
            except pumice.PumiceError as error:  # a worker is not there, or the engine died
                logger.warning("%s: its properties are not known while it is unloaded: %s", entry.name, error)
            entry.check_unused()  # requests may have come meanwhile; none does from here until it is unloaded
            if entry.service is not service:  # another call unloaded it
                return
            entry.properties = told
        model = entry.unloaded()
        if model is not None:
            logger.info("unloading %s", entry.name)
            await asyncio.to_thread(model.close)

    def drain(self, seconds: float) -> None:
        """Take nothing new; what still runs after so many seconds ends with an error. Signal handlers may call this."""
        if not self.draining:
            self.draining = True
            if self.loop is None:  # nothing was ever asked for
                return
            self.loop.call_soon_threadsafe(self.pulls.stop)  # a later one goes on where they end
            self.loop.call_soon_threadsafe(self.loop.call_later, seconds, self._end_all)

    def _end_all(self) -> None:
        for entry in self.entries:
            if entry.loading:
                entry.loading.cancel()
            if entry.service:
                entry.service.model.client.end(pumice.ModelClosedError("the server is stopping"))

    async def close(self) -> None:
        """End every engine and download. What is being loaded is ended too."""
        self.pulls.stop()
        for entry in self.entries:
            if entry.loading:
                entry.loading.cancel()
        models = [model for entry in self.entries if (model := entry.unloaded())]
        await asyncio.gather(*(asyncio.to_thread(model.close) for model in models))

    async def watch(self) -> None:
        """Until cancelled: unload what nobody used for long, notice engines that died, kill those that hang."""
        self.loop = asyncio.get_running_loop()
        asked = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look()
                if time.monotonic() - asked > _STALL_SECONDS / 4:
                    asked = time.monotonic()
                    for entry in self.entries:
                        if entry.service:
                            entry.service.ask(_STALL_SECONDS)
            except Exception as error:  # engines that die later are noticed all the same
                logger.error("cannot watch the models: %s: %s", type(error).__name__, error)

    async def _look(self) -> None:
        for entry in self.entries:
            self._notice_death(entry)
            if entry.idle and time.monotonic() > entry.expires:
                with contextlib.suppress(HTTPException):  # a request came meanwhile
                    await self.unload(entry)
        if self.single and self.single.state == "failed" and not self.single.wait_seconds and not self.draining:
            self.begin(self.single)

    # --- loading

    async def _ready(self, entry: Entry) -> Service:
        self._notice_death(entry)
        if entry.service is None:
            if entry.loading is None:
                if self.draining:
                    raise HTTPException(503, "the server is stopping")
                if entry.wait_seconds:
                    raise HTTPException(503, f"{entry.error}; tried again in {entry.wait_seconds:.0f} seconds")
                self.begin(entry)
            assert entry.loading is not None
            try:
                await asyncio.shield(entry.loading)
            except asyncio.CancelledError:
                if not self.draining:
                    raise
                raise HTTPException(503, "the server is stopping") from None
        assert entry.service is not None
        return entry.service

    def begin(self, entry: Entry) -> None:
        """Load it, unless it is loaded or being loaded."""
        if entry.service or entry.loading:
            return
        entry.loading = asyncio.create_task(self._load(entry))
        entry.loading.add_done_callback(lambda task: task.cancelled() or task.exception())  # somebody may wait for it

    async def _load(self, entry: Entry) -> None:
        """Raises what loading raises; the entry knows of it."""

        def progress(done: int, total: int) -> None:
            entry.progress = done, total

        deliver = asyncio.get_running_loop().call_soon_threadsafe
        try:
            async with self._turn:
                await self._make_room(entry)
                while True:
                    started = time.monotonic()
                    try:
                        model = await _in_thread(self._load_model, entry.spec, progress, deliver)
                        break
                    except (pumice.BackendError, pumice.EngineError) as error:  # too little memory, maybe
                        if not await self._evict():
                            raise
                        logger.info("%s: %s; tried again with more memory", entry.name, error)
            self._take(entry, model, time.monotonic() - started)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            entry.failed(error)
            self.metrics.crash(entry.name)
            if not entry.n_users:  # who waits for it is told
                logger.error("cannot load %s: %s", entry.name, error)
            raise
        finally:
            entry.loading = None

    def _take(self, entry: Entry, model: AnyModel, seconds: float) -> None:
        service = Service(model, entry.spec.names, self.settings, self.metrics, entry.scales_of(model))
        entry.loaded(service, seconds)
        if service.assumed_template and "completion" in capabilities(model.summary):
            warn_of_assumed_template(entry.name)

    def _notice_death(self, entry: Entry) -> None:
        error = entry.service.model.error if entry.service else None
        if entry.service and error:
            model = entry.service.model
            entry.failed(error)
            self.metrics.crash(entry.name)
            logger.error("%s: %s", entry.name, error)
            model.close()

    async def _make_room(self, entry: Entry) -> None:
        """Until there is room for another model. Raises HTTPException where all stay busy."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                while not self._has_room(entry):
                    if not await self._evict():
                        self._freed.clear()
                        await self._freed.wait()
        except TimeoutError:
            raise HTTPException(
                503, f"there is no room for {entry.name}: the models that are loaded are busy"
            ) from None

    def _has_room(self, entry: Entry) -> bool:
        loaded = [other for other in self.entries if other.service]
        most, memory = self.settings.max_models, self.settings.max_memory
        fits = not memory or sum(other.size for other in loaded) + entry.size <= memory
        return not loaded or ((not most or len(loaded) < most) and fits)

    async def _evict(self) -> bool:
        """Unload the model that was not used for longest, of those that nobody uses. False: there is none."""
        while idle := [entry for entry in self.entries if entry.idle]:
            with contextlib.suppress(HTTPException):  # a request came meanwhile
                await self.unload(min(idle, key=lambda entry: entry.last_used))
                return True
        return False


async def _in_thread(load: Callable[..., AnyModel], *arguments: object) -> AnyModel:
    """The model that ``load`` gives. The end of the program does not wait for it; one for nobody is closed."""
    future: Future[AnyModel] = Future()

    def run() -> None:
        try:
            model = load(*arguments)
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(model)
        except InvalidStateError:  # it was cancelled
            model.close()

    threading.Thread(target=run, name="pumice-load", daemon=True).start()
    return await asyncio.wrap_future(future)


async def service_of(request: Request, name: object = None) -> Service:
    """The service of the model that a request names, which is in use until the request's answer has ended."""
    models: Models = request.app.state.models
    name = name if isinstance(name, str) else None
    entry = models.find(name)
    stack: contextlib.AsyncExitStack = request.state.stack
    service = await stack.enter_async_context(models.using(entry))
    return service.called(name) if name else service
