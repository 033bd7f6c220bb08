"""The served models: their names, their watch, and their end with the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

import pumice
from pumice.cli.fetched_models import Fetched
from pumice.cli.named_models import configured_loras, for_other_models
from pumice.plugin.unstable import ModelSpec
from pumice_server.errors import no_model
from pumice_server.http.answers import unless_gone
from pumice_server.http.bodies import Generation
from pumice_server.limits import MAX_MODELS
from pumice_server.models.model_loading import ModelLoading
from pumice_server.models.model_service import BEAT_SECONDS, ModelService
from pumice_server.models.options import generation_options
from pumice_server.models.pulls import Pulls
from pumice_server.models.request_view import View
from pumice_server.models.served_model import Change, Load, ServedModel, State
from pumice_server.models.service import Service
from pumice_server.models.uploads import Uploads
from pumice_server.models.variant import default_variant, plain_name
from pumice_server.pools import FACTS, FILES
from pumice_server.settings import Settings

_LOOK_SECONDS = 0.5  # between checks for dead engines and idle models
_SILENT_SECONDS = BEAT_SECONDS  # without a batch when the server stops, after which requests end
_STALL_SECONDS = 120.0  # of a batch; an engine that needs longer is killed


logger = logging.getLogger("pumice")


class Models(ModelLoading):
    """The served models. Used by the event loop alone."""

    def __init__(
        self, specs: Sequence[ModelSpec], load: Load, settings: Settings, options: Mapping[str, Any] | None = None
    ) -> None:
        """``options``: Arguments of ``pumice.load`` for models that clients fetch or upload."""
        super().__init__([ServedModel(spec, settings.keep_alive) for spec in specs], load, settings)
        self.other_options = for_other_models(options or {})
        self.uploads = Uploads(settings.uploads, settings.upload_bytes) if settings.uploads else None
        self.started = int(time.time())  # noqa: TID251 (shown)
        self.pulls = Pulls()
        self.ends: list[Callable[[], None]] = [self.pulls.stop, self.events.end]  # called when the server stops
        for served_model in self.served_models:
            served_model.defaults = default_variant(served_model.spec.path)
            served_model.scales = configured_loras(served_model.spec.path, served_model.spec.options)
        self._checks: list[asyncio.Task[None]] = []  # of engines, when the server stops

    @classmethod
    def of(cls, model: pumice.Model, names: Sequence[str], settings: Settings) -> Models:
        """Return the models of a server whose only model is loaded already; the caller closes it."""

        def load(*_: object) -> pumice.Model:
            return model

        models = cls([ModelSpec(names, "")], load, settings)
        served_model = models.served_models[0]
        served_model.state = State.LOADING  # it was loaded before it was served
        models._take(served_model, model)
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
        """Return the model of a name; None for an unknown name. A model precedes adapters that have its name."""
        spellings = {name, plain_name(name)}
        found = [served_model for served_model in self.served_models if spellings & set(served_model.names)]
        own = [each for each in found if spellings & {*each.spec.names, *each.variants}]
        return next(iter([*own, *found]), None)

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

    async def add(self, name: str, fetched: Fetched) -> None:
        """Serve another model, which a client has fetched, unless its name is known already."""
        spec = ModelSpec([name], fetched.loads_as, self.other_options, fetched.size)
        scales = await FACTS(configured_loras, spec.path, spec.options)
        if self.known(name) is None:
            by_clients = fetched.new_files.union(*(other.fetched for other in self.served_models))
            served_model = ServedModel(spec, self.settings.keep_alive, fetched.files & by_clients)
            served_model.defaults, served_model.scales = default_variant(spec.path), scales
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
        await self.unload(served_model)
        self.metrics.forget(served_model.name)
        if self.uploads and served_model.folder:
            await FILES(self.uploads.unlink, served_model.folder)

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

    # --- watching and ending them

    def drain(self, seconds: float) -> None:
        """Refuse new requests, and end running ones with an error after some seconds. Safe in signal handlers."""
        if not self.draining:
            self.draining = True
            if self.loop is None:  # there was no request
                return
            for end in self.ends:  # downloads and batches go on another time
                self.loop.call_soon_threadsafe(end)
            self.loop.call_soon_threadsafe(self.loop.call_later, seconds, self._end_all)
            self.loop.call_soon_threadsafe(self._stop_waiting)

    def _stop_waiting(self) -> None:
        """Refuse requests that wait for room, and watch the engines of the others."""
        for served_model in self.served_models:
            served_model.wake()
        services = [served_model.service for served_model in self.served_models if served_model.service]
        self._checks = [asyncio.create_task(_end_if_silent(service)) for service in services]

    def _end_all(self) -> None:
        for served_model in self.served_models:
            if served_model.loading:
                served_model.loading.cancel()
            if served_model.service:
                served_model.service.model.engine.client.end(pumice.ModelClosedError("the server is stopping"))

    async def close(self) -> None:
        """End every engine and download, including models that are loading."""
        self.draining = True
        self.pulls.stop()
        for task in self._checks:
            task.cancel()
        for served_model in self.served_models:
            served_model.wake()
            if served_model.loading:
                served_model.loading.cancel()
        models = [each.drain(Change.STOP).model for each in self.served_models if each.service]
        await asyncio.gather(*(asyncio.to_thread(model.close) for model in models), *self._tasks)
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
        for served_model in list(self.served_models):
            self._notice_death(served_model)
            if served_model.is_idle and time.monotonic() > served_model.expires:
                self._unload(served_model)
        if self.single and self.single.state is State.FAILED and not self.single.wait_seconds and not self.draining:
            self._begin(self.single)
        self._arrange()  # a model that failed may be tried again


async def _end_if_silent(service: ModelService) -> None:
    """End the requests of an engine once it finishes no batch, since they cannot end by themselves."""
    try:
        while True:
            await service.snapshot(_SILENT_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        logger.error("%s: its engine does not answer, and its requests end now", service.name)
        service.model.engine.client.end(pumice.ModelClosedError("the server is stopping"))
    except pumice.PumiceError:
        return  # the engine has died, which ends its requests


async def service_of(request: Request, name: object = None) -> Service:
    """Return the service of the model that a request names, in use until the response has ended.

    Raises ClientDisconnect if the client leaves before the model is loaded.
    """
    models: Models = request.app.state.models
    name = name if isinstance(name, str) else None
    served_model = models.find(name)
    stack: contextlib.AsyncExitStack = request.state.stack
    using = stack.enter_async_context(models.using(served_model))
    shared = await (using if served_model.service else unless_gone(request, using))
    view = View(timeout=getattr(request.state, "timeout", None))
    plain = plain_name(name or "")
    variant = served_model.variants.get(plain)
    if name and variant:
        view = replace(view, name=name)
    elif name and (adapter := shared.adapter_of(plain)):
        view = replace(view, name=name, adapter=adapter)
    service, variant = Service(shared, view), variant or served_model.defaults
    if variant is None:
        return service
    defaults = generation_options(variant.parameters or Generation(), service)
    return Service(shared, replace(view, variant=variant, defaults=defaults))
