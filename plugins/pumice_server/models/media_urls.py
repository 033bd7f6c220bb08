"""Images and videos that messages name by addresses on the web, fetched from the hosts of ``--allow-media-from``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pumice
from pumice.hub import MediaFetch
from pumice.plugin.unstable import MAX_IMAGES, VIDEO_TYPES, web_address
from pumice_server.errors import bad_request
from pumice_server.limits import MAX_BODY
from pumice_server.pools import FETCHES, PREPARATION


async def with_fetched(messages: Any, hosts: Sequence[str]) -> Any:
    """Return messages with the files of images and videos that addresses name; as they are without ``hosts``.

    The files of a request have at most MAX_BODY bytes together, as they would have in its body.

    Raises:
        RequestError: an image cannot be fetched, or its address is not allowed.
        HTTPException: there are too many addresses, or too many requests wait for theirs.
    """
    urls = await PREPARATION(_addresses, messages) if hosts else []
    if not urls:
        return messages
    if len(urls) > MAX_IMAGES:
        raise bad_request(f"messages: {len(urls)} addresses of images; at most {MAX_IMAGES} images are allowed")
    fetch = MediaFetch(hosts, MAX_BODY)
    try:
        files = await FETCHES(fetch.run, urls)
    except asyncio.CancelledError:
        fetch.abort()
        raise
    return [_with_files(message, files) for message in messages]


def _addresses(messages: Any) -> list[str]:
    return [url for part in parts_of(messages) if (url := web_address(part))]


def parts_of(messages: Any) -> Iterator[Any]:
    """Yield the parts of messages, and contents that are texts. Errors in messages are found later."""
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        yield from content if isinstance(content, list) else [content] if isinstance(content, str) else []


def _with_files(message: Any, files: Mapping[str, bytes]) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = [_file(part, files[url]) if (url := web_address(part)) else part for part in content]
    return {**message, "content": parts}


def _file(part: Mapping[str, Any], data: bytes) -> Mapping[str, Any]:
    if part["type"] in VIDEO_TYPES:
        return {"type": "video", "video": pumice.Video(data)}
    return {"type": "image", "image": pumice.Image(data)}
