"""The served models: loaded on first use, unloaded to make room, reloaded after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

import pumice
from pumice.cli.named_models import for_other_models, warn_of_assumed_template
from pumice.plugin.unstable import ModelSpec
from pumice_server.bodies import OllamaOptions
from pumice_server.errors import no_model
from pumice_server.limits import MAX_MODELS
from pumice_server.metrics import Metrics
from pumice_server.model_events import ModelEvents
from pumice_server.options import generation_options
from pumice_server.properties import properties
from pumice_server.pulls import Pulled, Pulls
from pumice_server.served_model import Deliver, Load, LoadProgress, ServedModel
from pumice_server.service import BEAT_SECONDS, Service
from pumice_server.settings import Settings
from pumice_server.summaries import capabilities
from pumice_server.uploads import Uploads
from pumice_server.variant import default_variant
from pumice_server.work import waiting

if TYPE_CHECKING:
    from pumice_server.service import AnyModel

_LOOK_SECONDS = 0.5  # between checks for dead engines and idle models
_LONG_LOAD_SECONDS = 10.0  # until the log says that a model is still loading
_SILENT_SECONDS = BEAT_SECONDS  # without a step when the server stops, after which requests end
_STALL_SECONDS = 120.0  # of a step; an engine that takes longer is killed


logger = logging.getLogger("pumice")


class Models:
    """The served models. Used by the event loop alone."""

    def __init__(
        self, specs: Sequence[ModelSpec], load: Load, settings: Settings, options: Mapping[str, Any] | None = None
    ) -> None:
        """``options``: Arguments of ``pumice.load`` for models that clients fetch or upload."""
        self.settings = settings
        self.other_options = for_other_models(options or {})
        self.uploads = Uploads(settings.uploads, settings.upload_bytes) if settings.uploads else None
        self.metrics = Metrics()
        self.draining = False
        self.started = int(time.time())
        self.pulls = Pulls()
        self.events = ModelEvents()
        self.ends: list[Callable[[], None]] = [self.pulls.stop, self.events.end]  # called when the server stops
        self.served_models = [ServedModel(spec, settings.keep_alive) for spec in specs]
        for served_model in self.served_models:
            served_model.defaults = default_variant(served_model.spec.path)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._load_model = load
        self._turn = asyncio.Lock()  # one model loads at a time, so that free memory is known
        self._closing: set[asyncio.Task[None]] = set()  # unloaded models that still have memory
        self._checks: list[asyncio.Task[None]] = []  # of engines, when the server stops
        self._freed = asyncio.Event()  # set when a model loses a user

    @classmethod
    def of(cls, model: AnyModel, names: Sequence[str], settings: Settings) -> Models:
        """Return the models of a server whose only model is loaded already; the caller closes it."""

        def load(*_: object) -> AnyModel:
            return model

        models = cls([ModelSpec(names, "")], load, settings)
        models._take(models.served_models[0], model, 0.0)
        return models

    # --- names

    @property
    def single(self) -> ServedModel | None:
        """The only model, if there is one: it loads at startup and answers to any name."""
        return self.served_models[0] if len(self.served_models) == 1 else None

    def find(self, name: str | None) -> ServedModel:
        """Return the model of a name, or the first without a name. Raises HTTPException for an unknown name."""
        if self.single or not name:
            return self.served_models[0]
        served_model = self.known(name)
        if served_model is None:
            raise no_model(name, [served_model.name for served_model in self.served_models])
        return served_model

    def known(self, name: str) -> ServedModel | None:
        spellings = {name, name.removesuffix(":latest")}
        return next((served_model for served_model in self.served_models if spellings & set(served_model.names)), None)

    @property
    def names(self) -> list[str]:
        """Names of all models that requests may use, without those of adapters."""
        return [
            name for served_model in self.served_models for name in (*served_model.spec.names, *served_model.variants)
        ]

    def check_number(self, name: str) -> None:
        """Raise HTTPException if too many models are served, or being fetched, to serve another by this name."""
        coming = {other for other in self.pulls.names if self.known(other) is None} | {name}
        if len(self.served_models) + len(coming) > MAX_MODELS:
            raise HTTPException(503, f"{MAX_MODELS} models are served or being fetched already: delete others")

    def add(self, name: str, pulled: Pulled) -> None:
        """Serve another model, which a client has fetched, unless its name is known already."""
        if self.known(name) is None:
            spec = ModelSpec([name], pulled.loads_as, self.other_options, pulled.size)
            by_clients = pulled.new_files.union(*(other.fetched for other in self.served_models))
            served_model = ServedModel(spec, self.settings.keep_alive, pulled.files & by_clients)
            served_model.defaults = default_variant(spec.path)
            self.served_models.append(served_model)
            self.events.tell("models_reload", "*")

    async def remove(self, served_model: ServedModel) -> None:
        """Serve a model no longer, and free its memory; uploaded files go too.

        Raises HTTPException if it is in use, or not served any more.
        """
        if served_model not in self.served_models:  # another request has removed it
            raise no_model(served_model.name, [other.name for other in self.served_models])
        served_model.check_unused()
        self.served_models.remove(served_model)
        self.events.tell("model_remove", served_model.name)
        closing = _unloaded(served_model)
        if closing:
            await self._close(closing)
        if self.uploads and served_model.folder:
            await waiting(self.uploads.unlink, served_model.folder)

    async def replace(self, served_model: ServedModel) -> None:
        """Serve a model that a client has uploaded, in place of an earlier one of its name.

        Raises HTTPException if the name is another model's, the earlier one is in use, or too many are served.
        """
        name = served_model.name
        while (earlier := self.known(name)) is not None:
            if name in earlier.variants:
                del earlier.variants[name]
            elif earlier.folder is not None and name == earlier.name:
                await self.remove(earlier)
            else:
                raise HTTPException(409, f"{name!r:.100} is a name of the server's own")
        self.check_number(name)
        self.served_models.append(served_model)
        self.events.tell("models_reload", "*")

    # --- using them

    @contextlib.asynccontextmanager
    async def using(self, served_model: ServedModel) -> AsyncIterator[Service]:
        """Provide the service of a model: load it if needed, and keep it loaded meanwhile.

        Raises HTTPException if the model is not available now, and the errors of loading.
        """
        served_model.n_users += 1
        self.loop = asyncio.get_running_loop()
        try:
            yield await self._ready(served_model)
        finally:
            served_model.n_users -= 1
            served_model.last_used = time.monotonic()
            self._freed.set()

    async def unload(self, served_model: ServedModel) -> None:
        """Free the memory of a model. Raises HTTPException if the model is in use."""
        served_model.check_unused()
        if service := served_model.service:
            last_properties = None
            try:
                last_properties = await waiting(_last_properties, served_model, self.settings)
            except pumice.PumiceError as error:  # a worker is missing, or the engine died
                logger.warning("%s: its properties are not known while it is unloaded: %s", served_model.name, error)
            served_model.check_unused()  # requests may have come during the await; none can from here on
            if served_model.service is not service:  # another call unloaded it
                return
            served_model.properties = last_properties
        closing = _unloaded(served_model)
        self.events.status(served_model.name, "sleeping" if served_model.sleeps else served_model.state)
        if closing:
            logger.info("unloading %s", served_model.name)
            del service
            await self._close(closing)

    async def _close(self, closing: list[AnyModel]) -> None:
        """Close an unloaded model, as ``_close_and_collect``; until it is closed, no other model loads."""
        task = asyncio.create_task(_close_and_collect(closing))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        await asyncio.shield(task)

    def drain(self, seconds: float) -> None:
        """Refuse new requests, and end running ones with an error after some seconds. Safe in signal handlers."""
        if not self.draining:
            self.draining = True
            if self.loop is None:  # there was no request
                return
            for end in self.ends:  # downloads and batches go on another time
                self.loop.call_soon_threadsafe(end)
            self.loop.call_soon_threadsafe(self.loop.call_later, seconds, self._end_all)
            self.loop.call_soon_threadsafe(self._check_engines)

    def _check_engines(self) -> None:
        services = [served_model.service for served_model in self.served_models if served_model.service]
        self._checks = [asyncio.create_task(_end_if_silent(service)) for service in services]

    def _end_all(self) -> None:
        for served_model in self.served_models:
            if served_model.loading:
                served_model.loading.cancel()
            if served_model.service:
                served_model.service.model.client.end(pumice.ModelClosedError("the server is stopping"))

    async def close(self) -> None:
        """End every engine and download, including models that are loading."""
        self.pulls.stop()
        for check in self._checks:
            check.cancel()
        for served_model in self.served_models:
            if served_model.loading:
                served_model.loading.cancel()
        models = [model for served_model in self.served_models if (model := served_model.unloaded())]
        await asyncio.gather(*(asyncio.to_thread(model.close) for model in models))
        if self.uploads:
            await asyncio.to_thread(self.uploads.close)

    async def watch(self) -> None:
        """Unload idle models, notice dead engines and kill hanging ones, until cancelled."""
        self.loop = asyncio.get_running_loop()
        asked = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look()
                if time.monotonic() - asked > _STALL_SECONDS / 4:
                    asked = time.monotonic()
                    for served_model in self.served_models:
                        if served_model.service:
                            served_model.service.ask(_STALL_SECONDS)
            except Exception as error:  # later rounds still run
                logger.error("cannot watch the models: %s: %s", type(error).__name__, error)

    async def _look(self) -> None:
        for served_model in self.served_models:
            self._notice_death(served_model)
            if served_model.idle and time.monotonic() > served_model.expires:
                with contextlib.suppress(HTTPException):  # a request came meanwhile
                    await self.unload(served_model)
        if self.single and self.single.state == "failed" and not self.single.wait_seconds and not self.draining:
            self.begin(self.single)

    # --- loading

    async def _ready(self, served_model: ServedModel) -> Service:
        self.load(served_model)
        while served_model.service is None:
            assert served_model.loading is not None
            try:
                await asyncio.shield(served_model.loading)
            except asyncio.CancelledError:
                if not self.draining:
                    raise
                raise HTTPException(503, "the server is stopping") from None
            self.load(served_model)  # its engine may have died before this turn
        return served_model.service

    def load(self, served_model: ServedModel) -> None:
        """Begin to load a model, unless it is loaded or loading. Raises HTTPException if it cannot be loaded now."""
        self._notice_death(served_model)
        if served_model.service or served_model.loading:
            return
        if self.draining:
            raise HTTPException(503, "the server is stopping")
        if seconds := served_model.wait_seconds:
            raise HTTPException(503, f"{served_model.error}; tried again in {seconds:.0f} seconds")
        self.begin(served_model)

    def begin(self, served_model: ServedModel) -> None:
        """Load a model, unless it is loaded or loading."""
        if served_model.service or served_model.loading:
            return
        served_model.loading = asyncio.create_task(self._load(served_model))
        served_model.loading.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # maybe nothing awaits it
        self.events.status(served_model.name, served_model.state)

    async def _load(self, served_model: ServedModel) -> None:
        """Load a model. Raises the errors of loading, which the served model keeps."""

        deliver = asyncio.get_running_loop().call_soon_threadsafe

        def progress(done: int, total: int) -> None:
            before, served_model.progress = served_model.progress, (done, total)
            if total and (before[1] != total or 100 * done // total > 100 * before[0] // total):
                deliver(self.events.status, served_model.name, "loading", done / total)

        try:
            async with self._turn:
                await self._make_room(served_model)
                while True:
                    if self._closing:
                        await asyncio.wait(self._closing)
                    started = time.monotonic()
                    late = asyncio.get_running_loop().call_later(_LONG_LOAD_SECONDS, _tell_loading, served_model)
                    try:
                        model = await _in_thread(self._load_checked, served_model.spec, progress, deliver)
                        break
                    except (pumice.BackendError, pumice.EngineError) as error:  # too little memory, maybe
                        if not await self._evict():
                            raise
                        logger.info("%s: %s; tried again with more memory", served_model.name, error)
                    finally:
                        late.cancel()
            self._take(served_model, model, time.monotonic() - started)
            del model
            _freeze_loaded()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(served_model, error)
            if not served_model.n_users:  # waiting requests get the error
                logger.error("cannot load %s: %s", served_model.name, error)
            raise
        finally:
            served_model.loading = None

    def _load_checked(self, spec: ModelSpec, progress: LoadProgress, deliver: Deliver) -> AnyModel:
        """Load a model, and check the server's grammar or schema with it. Raises RequestError, as well as loading's."""
        model = self._load_model(spec, progress, deliver)
        try:
            if self.settings.output:
                model.prepare_options(self.settings.output)
        except BaseException:
            model.close()
            raise
        _prepare_texts(model)
        return model

    def _take(self, served_model: ServedModel, model: AnyModel, seconds: float) -> None:
        service = Service(model, served_model.spec.names, self.settings, self.metrics, served_model.scales_of(model))
        served_model.loaded(service, seconds)
        self.events.status(served_model.name, served_model.state)
        if service.assumed_template and "completion" in capabilities(model.summary):
            warn_of_assumed_template(served_model.name)

    def _notice_death(self, served_model: ServedModel) -> None:
        error = served_model.service.model.error if served_model.service else None
        if served_model.service and error:
            model = served_model.service.model
            self._failed(served_model, error)
            logger.error("%s: %s", served_model.name, error)
            model.close()
            del model
            _collect_unloaded()

    def _failed(self, served_model: ServedModel, error: Exception) -> None:
        """Note that a model cannot be loaded, or that its engine died."""
        served_model.failed(error)
        self.metrics.crash(served_model.name)
        self.events.status(served_model.name, "failed")

    async def _make_room(self, served_model: ServedModel) -> None:
        """Wait for room for another model. Raises HTTPException if all models stay busy."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                while not self._has_room(served_model):
                    if not await self._evict():
                        self._freed.clear()
                        await self._freed.wait()
        except TimeoutError:
            raise HTTPException(
                503, f"there is no room for {served_model.name}: all loaded models are in use"
            ) from None

    def _has_room(self, served_model: ServedModel) -> bool:
        loaded = [other for other in self.served_models if other.service]
        most, memory = self.settings.max_models, self.settings.max_memory
        fits = not memory or sum(other.size for other in loaded) + served_model.size <= memory
        return not loaded or ((not most or len(loaded) < most) and fits)

    async def _evict(self) -> bool:
        """Unload the model that has been idle for longest. Returns False if no model is idle."""
        while idle := [served_model for served_model in self.served_models if served_model.idle]:
            with contextlib.suppress(HTTPException):  # a request came meanwhile
                await self.unload(min(idle, key=lambda served_model: served_model.last_used))
                return True
        return False


def _tell_loading(served_model: ServedModel) -> None:
    """Log that a model is still loading; otherwise the server looks as if it hangs."""
    done, total = served_model.progress
    steps = f", {done} of {total} steps" if total else ""
    logger.warning(
        "%s: still loading after %g seconds%s; kernels that it has to compile are kept for the next start",
        served_model.name,
        _LONG_LOAD_SECONDS,
        steps,
    )


async def _end_if_silent(service: Service) -> None:
    """End the requests of an engine once it finishes no step, since they cannot end by themselves."""
    try:
        while True:
            await service.snapshot(_SILENT_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        logger.error("%s: its engine does not answer, and its requests end now", service.name)
        service.model.client.end(pumice.ModelClosedError("the server is stopping"))
    except pumice.PumiceError:
        return  # the engine has died, which ends its requests


def _prepare_texts(model: AnyModel) -> None:
    """Build what splits texts into tokens: half a second for large vocabularies, in which no stream goes on."""
    with contextlib.suppress(Exception):  # requests that need it get the error
        model.tokenize("a")


def _freeze_loaded() -> None:
    """Leave the objects of loaded models out of collections of garbage.

    A full collection stops all streams, for 64 ms with one large vocabulary. Outside of the main thread, the process
    may be another program's, and its objects are left alone.
    """
    if threading.current_thread() is threading.main_thread():
        gc.freeze()


def _last_properties(served_model: ServedModel, settings: Settings) -> Mapping[str, Any] | None:
    """Return the properties of a model that is to be unloaded, which a thread holds no longer than it needs it."""
    service = served_model.service
    return properties(served_model, service, settings) if service else None


def _unloaded(served_model: ServedModel) -> list[AnyModel]:
    """Unload a model, and return it in a list that alone has it, for ``_close_and_collect``; empty if none was."""
    model = served_model.unloaded()
    return [] if model is None else [model]


async def _close_and_collect(closing: list[AnyModel]) -> None:
    """Close the model of a list and free its objects.

    A model as an argument would live on in the thread, which keeps arguments for a moment after the call.
    """
    await asyncio.to_thread(lambda: closing.pop().close())
    _collect_unloaded()


def _collect_unloaded() -> None:
    """Free the objects of a model that was unloaded, and leave those of the others out of collections again."""
    if threading.current_thread() is threading.main_thread():
        gc.unfreeze()
        gc.collect()
        gc.freeze()


async def _in_thread(load: Callable[..., AnyModel], *arguments: object) -> AnyModel:
    """Return the model that ``load`` returns, run in a daemon thread. After a cancellation the model is closed."""
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
    """Return the service of the model that a request names, in use until the response has ended."""
    models: Models = request.app.state.models
    name = name if isinstance(name, str) else None
    served_model = models.find(name)
    stack: contextlib.AsyncExitStack = request.state.stack
    service = await stack.enter_async_context(models.using(served_model))
    if timeout := getattr(request.state, "timeout", None):
        service = service.within(timeout)
    variant = served_model.variants.get(name.removesuffix(":latest")) if name else None
    if name:
        service = service.named(name) if variant else service.called(name)
    variant = variant or served_model.defaults
    if variant is None:
        return service
    return service.with_variant(variant, generation_options(variant.parameters or OllamaOptions(), service))
