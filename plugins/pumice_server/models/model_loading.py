"""Load and unload served models: one at a time, within bounds, in the order of the requests that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from starlette.exceptions import HTTPException

import pumice
from pumice.cli.named_models import sharing, warn_of_assumed_template
from pumice.plugin.unstable import ModelSpec, install_command
from pumice_server import logs
from pumice_server.answer_types import Properties
from pumice_server.errors import no_model
from pumice_server.models.metrics import Metrics
from pumice_server.models.model_events import ModelEvents
from pumice_server.models.model_service import ModelService
from pumice_server.models.properties import properties
from pumice_server.models.served_model import Change, Deliver, Load, LoadProgress, ServedModel, State
from pumice_server.models.service import Service
from pumice_server.models.summaries import capabilities
from pumice_server.pools import FACTS, LOADS
from pumice_server.settings import Settings

_LONG_LOAD_SECONDS = 10.0  # until the log says that a model is still loading
_OF_MEMORY = (pumice.OutOfMemoryError, pumice.EngineKilledError)  # errors of loads that unloading others may mend

logger = logging.getLogger("pumice")


class ModelLoading:
    """Loads and unloads the served models. Used by the event loop alone."""

    def __init__(self, served_models: list[ServedModel], load: Load, settings: Settings) -> None:
        self.served_models, self.settings = served_models, settings
        self.metrics = Metrics()
        self.events = ModelEvents()
        self.draining = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._load_model = load
        self._tasks: set[asyncio.Task[None]] = set()  # loads without a request, and unloaded models that are closed
        self._leaving: set[ServedModel] = set()  # unloaded models that still have memory

    @contextlib.asynccontextmanager
    async def using(self, served_model: ServedModel) -> AsyncIterator[ModelService]:
        """Provide the service of a model: load it if needed, and keep it loaded meanwhile.

        Raises HTTPException if the model is not available now, and the errors of loading.
        """
        self.loop = asyncio.get_running_loop()
        logs.about(model=served_model.name)
        service = self._use(served_model) or await self._wait(served_model)
        try:
            yield service
        finally:
            served_model.leave(service)
            self._arrange()

    async def unload(self, served_model: ServedModel) -> None:
        """Free the memory of a model. Raises HTTPException if the model is in use."""
        served_model.check_unused()
        if served_model.state is State.READY:
            self._unload(served_model)
        await served_model.drained()

    # --- loading

    def _use(self, served_model: ServedModel) -> ModelService | None:
        self._notice_death(served_model)
        return served_model.use()

    async def _wait(self, served_model: ServedModel) -> ModelService:
        """Wait until a model is loaded, and use it.

        Raises HTTPException if there is no room for it within the timeout of requests, and the errors of loading.
        """
        left = self.settings.timeout
        with LOADS.hold():
            served_model.expect()
            try:
                while True:
                    self._check_available(served_model)
                    served_model.is_asked_for = True
                    self._arrange()
                    if served_model.loading:
                        await _ended(served_model.loading)
                    else:
                        left = await self._wait_for_change(served_model, left)
                    if service := self._use(served_model):
                        return service
            finally:
                served_model.n_waiting -= 1
                self._arrange()

    async def _wait_for_change(self, served_model: ServedModel, seconds: float) -> float:
        """Return the seconds that are left once the state of a model has changed. Raises HTTPException if none are."""
        began = time.monotonic()
        try:
            await served_model.change(seconds)
        except TimeoutError:
            raise self._no_room(served_model) from None
        return seconds - (time.monotonic() - began)

    def load(self, served_model: ServedModel) -> None:
        """Begin to load a model, unless it is loaded or loading. Raises HTTPException if it cannot be loaded now."""
        self._notice_death(served_model)
        if served_model.service or served_model.loading or served_model.n_waiting:
            return
        self._check_available(served_model)
        if self._to_evict(served_model) is None:
            raise self._no_room(served_model)
        self._keep(asyncio.create_task(self._hold(served_model)))

    async def _hold(self, served_model: ServedModel) -> None:
        """Load a model that no request waits for."""
        try:
            async with self.using(served_model):
                pass
        except Exception as error:
            if self.draining:
                return
            reason = error.detail if isinstance(error, HTTPException) else error
            logger.error("cannot load %s: %s", served_model.name, reason)

    def _check_available(self, served_model: ServedModel) -> None:
        """Raise HTTPException if a model that is not loaded cannot be loaded now, whatever room there is."""
        if self.draining:
            raise HTTPException(503, "the server is stopping")
        if served_model not in self.served_models:
            raise no_model(served_model.name, [other.name for other in self.served_models])
        if seconds := served_model.wait_seconds:
            raise HTTPException(503, f"{served_model.error} (the next attempt is in {seconds:.0f} s)")

    def _arrange(self) -> None:
        """Begin the next load that has room, in the order of the first requests, or evict a model for it.

        One model loads at a time, and none while another leaves, so that free memory is known.
        """
        if self.draining or self._leaving or any(each.loading for each in self.served_models):
            return
        wanted = [served_model for served_model in self.served_models if served_model.is_wanted]
        for served_model in sorted(wanted, key=lambda each: each.asked_at):
            evicted = self._to_evict(served_model)
            if evicted:
                self._unload(evicted[0])
                return
            if evicted is not None:
                self._begin(served_model)
                return

    def _to_evict(self, served_model: ServedModel) -> Sequence[ServedModel] | None:
        """Return the idle models that must leave for another, the least recently used first; None: that is not enough.

        Models that are loading or draining count as gone, since the decision is made again when they are done.
        """
        loaded = [other for other in self.served_models if other.service]
        idle = sorted((other for other in loaded if other.is_idle), key=lambda other: other.last_used)
        for n in range(len(idle) + 1):
            if self._fits(served_model, [other for other in loaded if other not in idle[:n]]):
                return idle[:n]
        return None

    def _fits(self, served_model: ServedModel, beside: Sequence[ServedModel]) -> bool:
        most, memory = self.settings.max_models, self.settings.max_memory
        size = sum(other.size for other in beside) + served_model.size
        n = len(beside)
        return not n or (n <= served_model.most_beside and not 0 < most <= n and not 0 < memory < size)

    def _no_room(self, served_model: ServedModel) -> HTTPException:
        """Return the error of a model without room: which models are in use, and what to do."""
        busy = ", ".join(f"{other.name:.100}" for other in self.served_models if other.service)
        most, memory = self.settings.max_models, self.settings.max_memory
        bounds = [f"--models-max is {most}"] if most else []
        bounds += [f"--models-memory is {memory / 2**30:.3g} GiB"] if memory else []
        told = f" ({', '.join(bounds)})" if bounds else ""
        what = f"in use: {busy}" if busy else "other models are being loaded or unloaded"
        problem = f"there is no room for {served_model.name} beside other models{told}; {what}"
        return HTTPException(503, f"{problem}; try again once one is idle, or raise the limit")

    def _begin(self, served_model: ServedModel) -> None:
        loading = asyncio.create_task(self._load(served_model))
        loading.add_done_callback(lambda task: task.cancelled() or task.exception())  # maybe no request waits for it
        served_model.begin(loading)
        self._tell(served_model)

    def _tell(self, served_model: ServedModel) -> None:
        self.events.status(served_model.name, "sleeping" if served_model.sleeps else served_model.status)

    async def _load(self, served_model: ServedModel) -> None:
        """Load a model. Raises the errors of loading, which the served model keeps."""
        loop = asyncio.get_running_loop()

        def progress(done: int, total: int) -> None:
            before, served_model.progress = served_model.progress, (done, total)
            if total and (before[1] != total or 100 * done // total > 100 * before[0] // total):
                loop.call_soon_threadsafe(self.events.status, served_model.name, "loading", done / total)

        late = loop.call_later(_LONG_LOAD_SECONDS, _tell_loading, served_model)
        try:
            model = await _in_thread(self._load_checked, served_model.spec, progress, loop.call_soon_threadsafe)
            self._take(served_model, model)
            del model
            _freeze_loaded()
        except asyncio.CancelledError:
            served_model.move(Change.GIVE_UP)
            raise
        except Exception as error:
            self._not_loaded(served_model, error)
        finally:
            late.cancel()
            self._arrange()

    def _not_loaded(self, served_model: ServedModel, error: Exception) -> None:
        """Give up a load that found too little memory beside other models, else raise its error."""
        n_beside = sum(other.service is not None for other in self.served_models)
        if isinstance(error, _OF_MEMORY) and n_beside and not served_model.is_too_large:
            logger.info("%s: %s; tried again with more memory", served_model.name, error)
            served_model.most_beside = n_beside - 1
            served_model.move(Change.GIVE_UP)
            self._tell(served_model)
            return
        served_model.is_too_large = isinstance(error, _OF_MEMORY)
        if not served_model.n_waiting:  # waiting requests get the error
            logger.error("cannot load %s: %s", served_model.name, error)
        self._failed(served_model, error)
        raise error

    def _load_checked(self, spec: ModelSpec, progress: LoadProgress, deliver: Deliver) -> pumice.Model:
        """Load a model, and check its sampler chain and the server's grammar or schema with it.

        Raises PluginError and RequestError, as well as loading's.
        """
        model = self._load_model(self._sharing(spec), progress, deliver)
        try:
            if model.facts.generates:
                _ = model.sampling  # an error if several plugins claim the name of a sampler
            if self.settings.output and model.facts.generates:
                options: dict[str, Any] = {**self.settings.output}
                model.request([], **options)
        except BaseException:
            model.close()
            raise
        return model

    def _sharing(self, spec: ModelSpec) -> ModelSpec:
        """Return a model whose cache leaves memory to the others that may be loaded beside it."""
        n = min(len(self.served_models), self.settings.max_models or len(self.served_models))
        return replace(spec, options=sharing(spec.options, n))

    def _take(self, served_model: ServedModel, model: pumice.Model) -> None:
        service = ModelService(
            model, served_model.spec.names, self.settings, self.metrics, served_model.scales_of(model)
        )
        served_model.loaded(service)
        self._tell(served_model)
        if service.assumed_template and "completion" in capabilities(model.summary):
            warn_of_assumed_template(served_model.name)
        _warn_of_missing_packages(service)

    def _notice_death(self, served_model: ServedModel) -> None:
        error = served_model.service.model.engine.error if served_model.service else None
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
        self._tell(served_model)

    # --- unloading

    def _unload(self, served_model: ServedModel) -> None:
        """Begin to unload an idle model."""
        self._leaving.add(served_model)
        self._keep(asyncio.create_task(self._drain(served_model, [served_model.drain()])))

    async def _drain(self, served_model: ServedModel, closing: list[ModelService]) -> None:
        """Keep the properties of a model for its sleep, and close it."""
        try:
            served_model.properties = await FACTS(_last_properties, served_model, closing, self.settings)
        except Exception as error:  # a worker is missing, or the engine died
            logger.warning("%s: its properties are not known while it is unloaded: %s", served_model.name, error)
        self._tell(served_model)
        logger.info("unloading %s", served_model.name)
        try:
            await _close_and_collect(closing)
        finally:
            self._leaving.discard(served_model)
            served_model.move(Change.CLOSE)
            self._arrange()

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task that nothing else holds."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ended(loading: asyncio.Task[None]) -> None:
    """Wait for a load. Raises its error; one that the server's end cancels has none."""
    await asyncio.wait([loading])
    if not loading.cancelled():
        loading.result()


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


def _warn_of_missing_packages(service: ModelService) -> None:
    """Warn if packages are missing that read what the model sees or hears."""
    media, needed = service.model.facts.media, {"PIL": "image", "av": "video", "soundfile": "audio", "soxr": "audio"}
    missing = [name for name, kind in needed.items() if kind in media and not find_spec(name)]
    if missing:
        problem = f"{', '.join(missing)} missing: requests with images or sounds get errors"
        logger.warning("%s: %s; %s", service.name, problem, install_command("media"))


def _freeze_loaded() -> None:
    """Leave the objects of loaded models out of collections of garbage.

    A full collection stops all streams, for 64 ms with one large vocabulary. Outside of the main thread, the process
    may be another program's, and its objects are left alone.
    """
    if threading.current_thread() is threading.main_thread():
        gc.freeze()


def _last_properties(served_model: ServedModel, closing: Sequence[ModelService], settings: Settings) -> Properties:
    """Return the properties of a model that is being unloaded.

    Its service is in a list that alone has it: a thread keeps its arguments for a moment after a call.
    """
    return properties(served_model, Service(closing[0]), settings)


async def _close_and_collect(closing: list[ModelService]) -> None:
    """Close the model of the service in a list, and free its objects."""
    await asyncio.to_thread(lambda: closing.pop().model.close())
    _collect_unloaded()


def _collect_unloaded() -> None:
    """Free the objects of a model that was unloaded, and leave those of the others out of collections again."""
    if threading.current_thread() is threading.main_thread():
        gc.unfreeze()
        gc.collect()
        gc.freeze()


async def _in_thread(load: Callable[..., pumice.Model], *arguments: object) -> pumice.Model:
    """Return the model that ``load`` returns, run in a daemon thread. After a cancellation the model is closed."""
    future: Future[pumice.Model] = Future()

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
