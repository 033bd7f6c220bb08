"""Rows of encoded media that stay in the engine's process: its client names them in requests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from pumice.embeddings import Embeddings, KeptMedia, KeptRows
from pumice.engine.messages import Add, Encode, EncodeMedia, MediaEncoded, media_of
from pumice.errors import RequestError


class KeptMediaRows:
    """Rows by the command that encoded them, and their number among its parts. Thread-safe.

    A client bounds their bytes, as it does those of rows that it has itself: it keeps what ``EncodedMedia`` has room
    for, and what its open requests name, and releases the rest.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Sequence[str | Embeddings]] = {}
        self._lock = threading.Lock()

    def answer(self, command: EncodeMedia, parts: Sequence[str | Embeddings]) -> MediaEncoded:
        """Return the answer to a command, and keep the rows if it wants that."""
        if not command.keep:
            return MediaEncoded(command.id, parts)
        with self._lock:
            self._kept[command.id] = parts
        media = KeptMedia(command.id)
        return MediaEncoded(command.id, [_named(part, media, number) for number, part in enumerate(parts)])

    def release(self, id: int) -> None:
        """Forget the rows of a command."""
        with self._lock:
            self._kept.pop(id, None)

    def fill(self, command: Add | Encode) -> Add | Encode:
        """Return a command with the rows that its spans name.

        Raises RequestError for rows that are not kept, which a client has released.
        """
        if not any(span.kept or span.key for span in media_of(command)):
            return command
        if isinstance(command, Encode):
            return msgspec.structs.replace(command, media=[self._filled(spans) for spans in command.media])
        request = command.request
        return msgspec.structs.replace(command, request=replace(request, media=self._filled(request.media)))

    def _filled(self, spans: Sequence[Embeddings]) -> list[Embeddings]:
        """Return spans with rows; a key is only believed of rows that were encoded here."""
        return [
            self._with_rows(span, span.kept, i) if span.kept else replace(span, key=b"") for i, span in enumerate(spans)
        ]

    def _with_rows(self, span: Embeddings, kept: KeptRows, number: int) -> Embeddings:
        with self._lock:
            parts = self._kept.get(kept.media.id, ())
        part = parts[kept.part] if 0 <= kept.part < len(parts) else None
        rows = part.rows if isinstance(part, Embeddings) else None
        if not isinstance(part, Embeddings) or rows is None or not 0 <= kept.first == len(rows) - kept.n_rows:
            raise RequestError(f"media[{number}]: the engine no longer has its rows; send the request again")
        return replace(span, rows=rows[kept.first :], key=part.key, kept=None)


def _named(part: str | Embeddings, media: KeptMedia, number: int) -> str | Embeddings:
    """Return a part with the name of its rows in their place."""
    if isinstance(part, str) or part.rows is None:
        return part
    return replace(part, rows=None, key=b"", kept=KeptRows(media, number, *part.rows.shape))
