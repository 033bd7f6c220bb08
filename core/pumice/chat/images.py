"""Images among the contents of messages, in the forms of OpenAI, Anthropic and transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.errors import RequestError
from pumice.images import IMAGE_TYPES, MAX_IMAGES, Image

NO_IMAGES = "no image is supported here"
_KEYS = ("image", "image_url", "url", "base64", "data")


def take_images(message: Any, where: str, images: list[Image] | None) -> Any:
    """Return a message whose images are parts ``{"type": "image"}`` alone, and append them to ``images``.

    Text in a list becomes a part. Anything else is returned as it is, for checks that follow. A text is never a path:
    messages may come from clients.

    Raises:
        RequestError: an image is in no known form, there are too many, or ``images`` is None.
    """
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple) or not any(isinstance(part, str) or _is_image(part) for part in content):
        return message
    parts: list[Any] = []
    for i, part in enumerate(content):
        if _is_image(part):
            if images is None:
                raise RequestError(f"{where}.content[{i}]: {NO_IMAGES}")
            if len(images) == MAX_IMAGES:
                raise RequestError(f"{where}.content[{i}]: more than {MAX_IMAGES} images; send fewer")
            images.append(_image(part, f"{where}.content[{i}]"))
            parts.append({"type": "image"})
        else:
            parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
    return {**message, "content": parts}


def web_address(part: Any) -> str:
    """Return the address on the web that a part of a message names as its image; empty for any other part."""
    if not _is_image(part) or isinstance(part, Image):
        return ""
    _, value = _value(part)
    is_web = isinstance(value, str) and value[:8].lower().startswith(("http://", "https://"))
    return str(value) if is_web else ""


def _is_image(part: Any) -> bool:
    return isinstance(part, Image) or (isinstance(part, Mapping) and part.get("type") in IMAGE_TYPES)


def _image(part: Any, where: str) -> Image:
    if isinstance(part, Image):
        return part
    key, value = _value(part)
    if not key:
        raise RequestError(f"{where}: the part has no image; give it as a data: URL in image_url.url")
    try:
        if isinstance(value, Image):
            return value
        if isinstance(value, str):
            return Image.from_base64(value) if key in ("base64", "data") else Image.from_url(value)
        if value is None or isinstance(value, bool | int | float | list | tuple | Mapping):
            raise RequestError(f"image: expected a data: URL, not {type(value).__name__}")
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from None
    return Image(value)


def _value(part: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the key of a part's image, and its value; an empty key without an image."""
    source = part.get("source") if isinstance(part.get("source"), Mapping) else part
    assert isinstance(source, Mapping)
    key = next((key for key in _KEYS if source.get(key) is not None), "")
    value = source.get(key)
    return key, value.get("url") if isinstance(value, Mapping) else value  # {"image_url": {"url": ...}}
