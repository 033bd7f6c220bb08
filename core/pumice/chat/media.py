"""Images and sounds among the contents of messages, in the forms of OpenAI, Anthropic and transformers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from pumice.architecture import MediaKind
from pumice.audio import AUDIO_TYPES, Audio, is_sound
from pumice.chat.mixed import Media
from pumice.errors import RequestError
from pumice.images import IMAGE_TYPES, MAX_IMAGES, Image

NO_MEDIA = "no image or sound is supported here"
MEDIA_TYPES = (*IMAGE_TYPES, *AUDIO_TYPES)
TEXT_TYPES = ("text", "input_text")
VIDEO_TYPES = ("video", "video_url", "input_video")
NO_VIDEO = "video is not supported; send some of its frames as images, and their times as texts between them"
_KEYS = ("image", "image_url", "input_audio", "audio", "audio_url", "url", "base64", "data")


def kind_of(media: Media) -> MediaKind:
    """Return what an image or a sound is."""
    return "audio" if isinstance(media, Audio) else "image"


def take_media(message: Any, where: str, media: list[Media] | None) -> Any:
    """Return a message whose media are parts ``{"type": "image"}`` and ``{"type": "audio"}``, appended to ``media``.

    Text in a list becomes a part. Anything else is returned as it is, for checks that follow. A text is never a path:
    messages may come from clients.

    Raises:
        RequestError: an image or a sound is in no known form, there are too many, ``media`` is None, or there is video.
    """
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple):
        return message
    for i, part in enumerate(content):
        if isinstance(part, Mapping) and part.get("type") in VIDEO_TYPES:
            raise RequestError(f"{where}.content[{i}]: {NO_VIDEO}")
    if not any(isinstance(part, str) or _kind(part) for part in content):
        return message
    parts: list[Any] = []
    for i, part in enumerate(content):
        if kind := _kind(part):
            if media is None:
                raise RequestError(f"{where}.content[{i}]: {NO_MEDIA}")
            if len(media) == MAX_IMAGES:
                raise RequestError(f"{where}.content[{i}]: more than {MAX_IMAGES} images and sounds; send fewer")
            media.append(_media(part, kind, f"{where}.content[{i}]"))
            parts.append({"type": kind})
        else:
            parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
    return {**message, "content": parts}


def has_media(messages: object) -> bool:
    """Return True if a message has an image or a sound. Errors in messages are found later."""
    if not isinstance(messages, list | tuple):
        return False
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    return any(_kind(part) for content in contents if isinstance(content, list | tuple) for part in content)


def mixed_content(content: Sequence[object], where: str) -> list[str | Media]:
    """Return the texts, images and sounds of the parts of a message.

    Raises:
        RequestError: a part is in no known form, or there are too many images and sounds.
    """
    media: list[Media] = []
    parts = take_media({"content": content}, where, media)["content"]
    following = iter(media)
    mixed: list[str | Media] = []
    for i, part in enumerate(parts):
        if isinstance(part, Mapping) and part.get("type") in ("image", "audio"):
            mixed.append(next(following))
        elif isinstance(part, Mapping) and part.get("type") in TEXT_TYPES and isinstance(part.get("text"), str):
            mixed.append(part["text"])
        else:
            raise RequestError(f"{where}.content[{i}]: expected a part with text, an image or a sound")
    return mixed


def media_from_base64(text: str) -> Media:
    """Return the image or the sound of a file in base64, by its first bytes. Raises RequestError."""
    return Audio.from_base64(text) if kind_of_base64(text) == "audio" else Image.from_base64(text)


def kind_of_base64(text: str) -> MediaKind:
    """Return "audio" for a file in base64 whose first bytes are those of a sound, and "image" for any other text."""
    try:
        head = base64.b64decode(text[:16], validate=True)
    except ValueError:  # also letters beyond ASCII
        head = b""
    return "audio" if is_sound(head) else "image"


def web_address(part: Any) -> str:
    """Return the address on the web that a part of a message names as its image; empty for any other part."""
    if isinstance(part, (Image, Audio)) or _kind(part) != "image":
        return ""
    _, value = _value(part)
    is_web = isinstance(value, str) and value[:8].lower().startswith(("http://", "https://"))
    return str(value) if is_web else ""


def _kind(part: Any) -> MediaKind | None:
    """Return what a part of a message is; None for text and anything else."""
    if isinstance(part, (Image, Audio)):
        return kind_of(part)
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return None
    return "image" if part["type"] in IMAGE_TYPES else "audio" if part["type"] in AUDIO_TYPES else None


_EXAMPLES: Mapping[MediaKind, str] = {
    "image": "give it as a data: URL in image_url.url",
    "audio": "give it as base64 in input_audio.data",
}


def _media(part: Any, kind: MediaKind, where: str) -> Media:
    if isinstance(part, (Image, Audio)):
        return part
    make = Audio if kind == "audio" else Image
    key, value = _value(part)
    if not key:
        raise RequestError(f"{where}: the part has no {kind}; {_EXAMPLES[kind]}")
    try:
        if isinstance(value, make):
            return value
        if isinstance(value, str):
            is_base64 = key in ("base64", "data")
            return make.from_base64(value) if is_base64 else make.from_url(value)
        if value is None or isinstance(value, bool | int | float | list | tuple | Mapping | Image | Audio):
            raise RequestError(f"{kind}: expected a data: URL, not {type(value).__name__}")
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from None
    return make(value)


def _value(part: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the key of a part's image or sound, and its value; an empty key without one."""
    source = part.get("source") if isinstance(part.get("source"), Mapping) else part
    assert isinstance(source, Mapping)
    key = next((key for key in _KEYS if source.get(key) is not None), "")
    value = source.get(key)
    if isinstance(value, Mapping):  # {"image_url": {"url": ...}}, {"input_audio": {"data": ...}}
        key = "data" if value.get("data") is not None else key
        value = value.get("data") if key == "data" else value.get("url")
    return key, value
