"""LoRA adapters of a served model and their scales. Requests name adapters by number.

Control vectors apply to every request, with the scale with which they were given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

import pumice
from pumice_server.answer_types import Success
from pumice_server.interface import (
    FILES,
    AdapterFile,
    Models,
    Scales,
    ServedModel,
    Service,
    Settings,
    bad_request,
    scales_by_name,
    service_of,
    without_folders,
)
from pumice_server.protocols.llama_server.answer_types import AdapterScale


async def list_adapters(request: Request) -> list[AdapterScale]:
    """List the LoRA adapters and their scales.

    ``?model=``: Name of the model.
    """
    service = await service_of(request, request.query_params.get("model"))
    files = service.model.config.adapters
    return [
        AdapterScale(id=i, path=Path(files[name].file).name, scale=scale)
        for i, (name, scale) in enumerate(service.scales.items())
    ]


async def change_adapters(request: Request, body: Scales | AdapterFile) -> Success:
    """Set the scales of LoRA adapters for requests that do not set them, or add an adapter.

    A list has the scales; adapters that are not listed are off. An object names a file of `--lora-dir`.

    ``?model=``: Name of the model, not of an adapter.
    """
    service, served_model = await _model_of(request)
    if not isinstance(body, AdapterFile):
        service.scales.update(scales_by_name(body, list(service.scales)))
        return Success(success=True)
    adapters = service.model.adapters
    path = await FILES(_allowed, request.app.state.settings, body.path)
    name = path.stem if body.name is None else body.name
    if name in served_model.names:
        raise bad_request(f"name: {name!r:.100} is a model or an adapter of this server; give another name")

    def add() -> None:
        adapters.add(path, name=name, scale=body.scale, layers=body.layers)

    await _changed(service, served_model, add)
    return Success(success=True)


async def remove_adapter(request: Request) -> Success:
    """Remove an adapter. Requests that have begun with it keep it.

    ``?name=``: Name of the adapter.
    ``?model=``: Name of the model, not of an adapter.
    """
    service, served_model = await _model_of(request)
    _folder(request.app.state.settings)
    adapters, name = service.model.adapters, request.query_params.get("name", "")
    await _changed(service, served_model, lambda: adapters.__delitem__(name))
    return Success(success=True)


async def _changed(service: Service, served_model: ServedModel, change: Callable[[], None]) -> None:
    """Change the adapters of a model. Raises HTTPException for files that do not fit it."""
    try:
        await FILES(change)
    except (pumice.ModelError, pumice.GGUFError, pumice.ConvertError) as error:
        raise bad_request(without_folders(str(error))) from None
    finally:
        served_model.adapters_changed(service.model)


async def _model_of(request: Request) -> tuple[Service, ServedModel]:
    """Return the model that a request names, which must not be that of an adapter."""
    name = request.query_params.get("model")
    service = await service_of(request, name)
    models: Models = request.app.state.models
    served_model = models.find(name)
    if service.adapter is not None:
        meaning = f"this is {served_model.name:.100} with the adapter {service.adapter:.100} alone, at scale 1"
        raise bad_request(f"model={name:.100}: {meaning}; name the model itself, or give `lora` with a request")
    return service, served_model


def _folder(settings: Settings) -> Path:
    if settings.adapter_folder is None:
        raise HTTPException(501, "this server adds and removes no adapters: start it with --lora-dir DIR")
    return settings.adapter_folder.resolve()


def _allowed(settings: Settings, name: str) -> Path:
    """Return the path of a file in the folder of adapters. Raises HTTPException for any other."""
    folder = _folder(settings)
    try:
        path = Path(os.path.realpath(folder / name))
        if path != folder and path.is_relative_to(folder) and path.exists():
            return path
    except (OSError, ValueError):
        pass
    raise HTTPException(404, f"path: there is no adapter {name!r:.200} in the folder of --lora-dir")
