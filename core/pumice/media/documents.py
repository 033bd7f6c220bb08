"""Texts of PDF files, read by pypdf in a confined worker process."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import NamedTuple

from pumice.errors import MissingPackageError, RequestError
from pumice.isolation import CallLimits, WorkerPool
from pumice.media.encoded import MAX_BYTES, decode_base64

MAX_PAGES = 2000
MAX_TEXT = 1 << 20  # characters of a file's pages together
_LIMITS = CallLimits(cpu_seconds=20, max_in=4 * -(-MAX_BYTES // 3) + 1024, max_out=8 * MAX_TEXT)


class DocumentText(NamedTuple):
    """The text of a file, with a form feed between pages, and the number of its pages."""

    text: str
    n_pages: int


def pdf_text(encoded: str) -> DocumentText:
    """Return the text of a PDF in base64.

    Raises:
        MissingPackageError: The package ``pypdf`` is missing.
        RequestError: The file is damaged, encrypted, or beyond a limit.
        TooExpensiveError: Reading takes too much time or memory.
    """
    if b"%PDF-" not in decode_base64(encoded, "pdf")[:1024]:
        raise RequestError("pdf: the file does not begin as a PDF")
    if find_spec("pypdf") is None:
        raise MissingPackageError("pdf", "its text needs pypdf: pip install pypdf")
    text, n_pages = _workers().call(f"{__name__}:read_pdf", encoded, tuple[str, int])
    return DocumentText(text, n_pages)


@functools.cache
def _workers() -> WorkerPool:
    """Return the workers that this process shares."""
    return WorkerPool("reading the PDF", _LIMITS, n_workers=2)


# --- run in a worker


def read_pdf(encoded: str) -> tuple[str, int]:
    """Return the text of a PDF, and the number of its pages. Raises RequestError."""
    import io
    import logging

    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # damaged files fill the log
    try:
        reader = pypdf.PdfReader(io.BytesIO(decode_base64(encoded, "pdf")))
        if reader.is_encrypted and not reader.decrypt(""):
            raise RequestError("pdf: the file is encrypted; save it without a password")
        n_pages = len(reader.pages)
        if n_pages > MAX_PAGES:
            raise RequestError(f"pdf: {n_pages} pages; at most {MAX_PAGES} are read")
        texts: list[str] = []
        size = 0
        for page in reader.pages:
            texts.append(page.extract_text())
            size += len(texts[-1])
            if size > MAX_TEXT:
                raise RequestError(f"pdf: more than {MAX_TEXT} characters of text; send fewer pages")
    except (RequestError, MemoryError):
        raise
    except Exception:  # pypdf raises many kinds for damaged files
        raise RequestError("pdf: the file is damaged; open it in a viewer, and save it again") from None
    text = "\f".join(texts).encode("utf-8", "replace").decode()  # half a surrogate pair becomes "?"
    if not text.strip():
        raise RequestError("pdf: the pages have no text; they may be scanned pictures")
    return text, n_pages
