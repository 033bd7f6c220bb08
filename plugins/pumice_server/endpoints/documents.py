"""Endpoint for texts of PDF files, which the page attaches to messages."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request

from pumice.media.documents import DocumentText, pdf_text
from pumice_server.http.answers import unless_gone
from pumice_server.http.body import Body
from pumice_server.pools import MEDIA


class DocumentBody(Body, kw_only=True):
    """A file whose text is asked for."""

    pdf: Annotated[str, Meta(max_length=44_739_244)]
    """PDF file in base64, up to 32 MiB and 2,000 pages."""


class ExtractedText(Struct, kw_only=True):
    """The text of a file."""

    text: str
    """Text, with a form feed between pages."""
    n_pages: int
    """Number of pages."""


async def extract_text(request: Request, body: DocumentBody) -> ExtractedText:
    """Return the text of a PDF file, read in a confined process. Needs the package `pypdf`."""
    read: DocumentText = await unless_gone(request, MEDIA(pdf_text, body.pdf))
    return ExtractedText(text=read.text, n_pages=read.n_pages)
