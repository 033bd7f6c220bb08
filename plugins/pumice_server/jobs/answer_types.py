"""Files and batches, as answers have them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class FileObject(Struct, kw_only=True):
    """A file that the server keeps."""

    id: str
    object: Literal["file"]
    filename: str
    """Name that the client gave."""
    purpose: str
    """`batch`, or `batch_output` for answers."""
    bytes: int
    created_at: int
    """When it was made, in seconds since 1970."""
    expires_at: int
    """When it is deleted, in seconds since 1970."""
    status: Literal["processed"]


class Page(Struct, kw_only=True):
    """A page of a list."""

    object: Literal["list"]
    first_id: str | None
    """Id of the first; null for an empty page."""
    last_id: str | None
    """Id of the last, for `after` of the next page."""
    has_more: bool
    """True if more follow."""


class FileList(Page, kw_only=True):
    """A page of files."""

    data: list[FileObject]


class BatchError(Struct, kw_only=True):
    """An error in the input of a batch."""

    code: str
    message: str
    """Cause and remedy."""
    line: int | None
    """Line of the input, from 1."""
    param: str | None
    """Null."""


class BatchErrors(Struct, kw_only=True):
    """Errors of a batch."""

    object: Literal["list"]
    data: list[BatchError]


class RequestCounts(Struct, kw_only=True):
    """Numbers of a batch's requests."""

    total: int
    """All requests; 0 until the input has been read."""
    completed: int
    """Requests that were answered."""
    failed: int
    """Requests that failed."""


class BatchObject(Struct, kw_only=True):
    """A file of requests that are answered in the background."""

    id: str
    object: Literal["batch"]
    endpoint: str
    """Path of the requests."""
    errors: BatchErrors | None
    """Errors of the input, if it failed."""
    input_file_id: str
    completion_window: str
    """`24h`."""
    status: str
    """`validating`, `in_progress`, `completed`, `failed`, `expired`, `cancelling` or `cancelled`."""
    output_file_id: str | None
    """Id of the file of answers, at the end."""
    error_file_id: str | None
    """Id of the file of failed requests, at the end."""
    created_at: int
    """When it was made, in seconds since 1970."""
    expires_at: int
    """When its time is over, in seconds since 1970."""
    in_progress_at: int | None = None
    """When the first request began, in seconds since 1970."""
    finalizing_at: int | None = None
    """Null."""
    completed_at: int | None = None
    """When all were answered, in seconds since 1970."""
    failed_at: int | None = None
    """When it failed, in seconds since 1970."""
    expired_at: int | None = None
    """When its time was over, in seconds since 1970."""
    cancelling_at: int | None = None
    """When it was asked to end, in seconds since 1970."""
    cancelled_at: int | None = None
    """When it was cancelled, in seconds since 1970."""
    request_counts: RequestCounts
    """Numbers of requests."""
    metadata: dict[str, str] | None = None
    """Texts of the client."""


class BatchList(Page, kw_only=True):
    """A page of batches."""

    data: list[BatchObject]
