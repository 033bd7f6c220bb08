"""llama-server's properties of the server and its model."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pumice_server.answer_types import Properties
from pumice_server.catalogue import properties
from pumice_server.interface import FACTS, Models, Service, build_info, service_of


async def props(request: Request) -> Properties:
    """Return llama-server's properties of a model, or of a server with several.

    ``?model=``: Name of the model.
    """
    models: Models = request.app.state.models
    name = request.query_params.get("model")
    kept = "server" if models.settings.conversations else "browser"
    page = {"conversations": kept, "tools": request.app.state.tools is not None}
    build = build_info(models.settings.compat)
    if name is None and not models.single:
        most = models.settings.max_models
        return Properties(build_info=build, ui_settings=page, role="router", max_instances=most, models_autoload=True)
    served_model = models.find(name)
    if served_model.sleeps and served_model.properties is None:
        await served_model.drained()
    if served_model.sleeps:  # answer without loading it
        asleep = served_model.properties or Properties(build_info=build)
        return replace(asleep, ui_settings=page, is_sleeping=True)
    service = (
        Service(served_model.service) if served_model.service else await service_of(request, name)
    )  # a query is no use
    answer = await FACTS(properties, served_model, service, models.settings)
    return replace(answer, ui_settings=page, is_sleeping=False)


async def change_props(request: Request) -> Response:
    """Refuse to change properties, which are fixed while a model is served."""
    raise HTTPException(501, "properties cannot be changed")
