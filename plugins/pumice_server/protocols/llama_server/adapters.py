"""LoRA adapters of a served model and their scales. Requests name adapters by number.

Control vectors keep the scale of the command line.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request

from pumice_server.answer_types import Success
from pumice_server.interface import Models, Scales, bad_request, scales_by_name, service_of
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


async def set_adapters(request: Request, body: Scales) -> Success:
    """Set the scales of LoRA adapters for requests that do not set them; adapters that are not listed are off.

    ``?model=``: Name of the model, not of an adapter.
    """
    name = request.query_params.get("model")
    service = await service_of(request, name)
    if service.adapter is not None:
        models: Models = request.app.state.models
        meaning = f"this is {models.find(name).name:.100} with the adapter {service.adapter:.100} alone, at scale 1"
        raise bad_request(f"model={name:.100}: {meaning}; name the model itself, or give `lora` with a request")
    service.scales.update(scales_by_name(body, list(service.scales)))
    return Success(success=True)
