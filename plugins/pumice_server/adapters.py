"""LoRA adapters of a served model and their scales. Requests name adapters by number.

Control vectors keep the scale of the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answer_types import AdapterScale, Success
from pumice_server.answers import json_response
from pumice_server.bodies import Scale, Scales
from pumice_server.errors import bad_request
from pumice_server.models import service_of


async def list_adapters(request: Request) -> Annotated[Response, list[AdapterScale]]:
    """List the LoRA adapters and their scales.

    ``?model=``: Name of the model.
    """
    service = await service_of(request, request.query_params.get("model"))
    files = service.model.config.adapters
    adapters = [
        {"id": i, "path": Path(files[name].file).name, "scale": scale}
        for i, (name, scale) in enumerate(service.scales.items())
    ]
    return json_response(adapters)


async def set_adapters(request: Request, body: Scales) -> Annotated[Response, Success]:
    """Set the scales of LoRA adapters for requests that do not set them; adapters that are not listed are off.

    ``?model=``: Name of the model.
    """
    service = await service_of(request, request.query_params.get("model"))
    service.scales.update(scales_by_name(body, list(service.scales)))
    return json_response({"success": True})


def scales_by_name(entries: Sequence[Scale], names: Sequence[str], field: str = "the body") -> dict[str, float]:
    """Return the scale of each adapter, 0 for those that have no entry. Raises HTTPException."""
    if entries and not names:
        raise bad_request(f"{field}: this model has no LoRA adapters; --lora names some when the server is started")
    scales = dict.fromkeys(names, 0.0)
    for i, entry in enumerate(entries):
        if entry.id >= len(names):
            most = len(names) - 1
            raise bad_request(
                f"Field '{field}[{i}].id': Value must be between 0 <= value <= {most}, but got {entry.id}"
            )
        scales[names[entry.id]] = entry.scale
    return scales
