"""The web page: files of the folder ``page`` under ``/page/``, and ``index.html`` at ``/``."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from pumice_server.models.served_models import Models

FOLDER = Path(__file__).parents[1] / "page"

_HEADERS = {
    "Cache-Control": "no-cache",  # revalidated each time, with 304
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


_FRAME_HEADERS = {
    **_HEADERS,
    # What a model wrote runs here: without this page's origin, without any server, in this page's frame alone.
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; media-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox allow-scripts",
    "X-DNS-Prefetch-Control": "off",
}


async def index(request: Request) -> Response:
    """Return the page to chat in to browsers, and a few lines of text to other clients."""
    page = FOLDER / "index.html"
    models: Models = request.app.state.models
    if not models.settings.page:
        raise HTTPException(404)
    is_browser = models.settings.compat or "text/html" in request.headers.get("accept", "")
    if is_browser and page.is_file():
        return FileResponse(page, headers=_HEADERS)
    base = str(request.base_url).rstrip("/")
    names = [name for served_model in models.served_models for name in served_model.spec.names]
    return PlainTextResponse(
        f"Pumice serves {', '.join(names)}.\n\nOpenAI's clients: base_url={base}/v1\nModels: {base}/v1/models\n"
    )


class PageFiles(StaticFiles):
    """Serves the files of the page. Links out of the folder are not followed."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER, check_dir=False)
        self.config_checked = True  # without the folder there is no page: 404

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_FRAME_HEADERS if path == "frame.html" else _HEADERS)
        return response
