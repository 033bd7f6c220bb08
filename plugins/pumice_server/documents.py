"""Endpoint for texts of PDF files, which the page attaches to messages."""

from __future__ import annotations

from typing import Annotated

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pumice
from pumice.documents import DocumentText, pdf_text
from pumice_server.answer_types import ExtractedText
from pumice_server.answers import json_response, unless_gone
from pumice_server.bodies import DocumentBody
from pumice_server.pools import MEDIA


async def extract_text(request: Request, body: DocumentBody) -> Annotated[Response, ExtractedText]:
    """Return the text of a PDF file, read in a confined process. Needs the package `pypdf`."""
    read: DocumentText = await unless_gone(request, _read(body.pdf))
    return json_response(read._asdict())


async def _read(encoded: str) -> DocumentText:
    try:
        return await MEDIA(pdf_text, encoded)
    except pumice.ConfigError as error:
        raise HTTPException(501, str(error)) from None
