"""LoRA adapters of a served model: how strong each is, by its name; requests call them by their number.

Control vectors are as strong as the server was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server import limits
from pumice_server.answers import json_response
from pumice_server.body import Body, read_json
from pumice_server.errors import bad_request
from pumice_server.models import service_of


async def list_adapters(request: Request) -> Response:
    """``GET /lora-adapters``; of paths their last part."""
    service = await service_of(request, request.query_params.get("model"))
    files = service.model.config.adapters
    told = [
        {"id": i, "path": Path(files[name].file).name, "scale": scale}
        for i, (name, scale) in enumerate(service.scales.items())
    ]
    return json_response(told)


async def set_adapters(request: Request) -> Response:
    """``POST /lora-adapters``: how strong each is for requests that do not say; 0 for those not listed."""
    service = await service_of(request, request.query_params.get("model"))
    service.scales.update(read_scales(await read_json(request), list(service.scales)))
    return json_response({"success": True})


def read_scales(given: Any, names: Sequence[str], field: str = "the body") -> dict[str, float]:
    """``[{"id": 0, "scale": 0.5}]``. Raises HTTPException."""
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise bad_request(f"{field} must be a list of objects with an id and a scale")
    if len(given) > limits.MAX_SCALES:
        raise bad_request(f"{field}: at most {limits.MAX_SCALES} entries, not {len(given)}")
    scales = dict.fromkeys(names, 0.0)
    if given and not names:
        raise bad_request(f"{field}: this model has no LoRA adapters; --lora names some when the server is started")
    for each in (Body(entry, bounds=limits.SCALE) for entry in given):
        scales[names[each.integer("id", -1, 0, len(names) - 1)]] = float(each.number("scale", 0.0))
    return scales
