"""Images, sounds and videos among the contents of messages, in the forms of OpenAI, Anthropic and transformers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from pumice.architecture import MediaKind
from pumice.chat.mixed import MEDIA, Media
from pumice.errors import RequestError
from pumice.media.audio import AUDIO_TYPES, Audio, is_sound
from pumice.media.encoded import standard_base64
from pumice.media.images import IMAGE_TYPES, MAX_IMAGES, Image
from pumice.media.videos import VIDEO_TYPES, Video, is_video

NO_MEDIA = "no image, sound or video is supported here"
KINDS: tuple[MediaKind, ...] = ("image", "audio", "video")
MEDIA_TYPES = (*IMAGE_TYPES, *AUDIO_TYPES, *VIDEO_TYPES)
TEXT_TYPES = ("text", "input_text")
_NAMES = ("image", "image_url", "input_audio", "audio", "audio_url", "video", "video_url", "input_video")
_KEYS = (*_NAMES, "url", "base64", "data")


def kind_of(media: Media) -> MediaKind:
    """Return what media are."""
    return "audio" if isinstance(media, Audio) else "video" if isinstance(media, Video) else "image"


def take_media(message: Any, where: str, media: list[Media] | None) -> Any:
    """Return a message whose media are parts such as ``{"type": "image"}``, and append these to ``media``.

    Text in a list becomes a part. Anything else is returned as it is, for checks that follow. A text is never a path:
    messages may come from clients.

    Raises:
        RequestError: an image, a sound or a video is in no known form, there are too many, or ``media`` is None.
    """
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple):
        return message
    if not any(isinstance(part, str) or part_kind(part) for part in content):
        return message
    parts: list[Any] = []
    for i, part in enumerate(content):
        if kind := part_kind(part):
            if media is None:
                raise RequestError(f"{where}.content[{i}]: {NO_MEDIA}")
            if len(media) == MAX_IMAGES:
                raise RequestError(
                    f"{where}.content[{i}]: more than {MAX_IMAGES} images, sounds and videos; send fewer"
                )
            media.append(_media(part, kind, f"{where}.content[{i}]"))
            parts.append({"type": kind})
        else:
            parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
    return {**message, "content": parts}


def has_media(messages: object) -> bool:
    """Return True if a message has an image, a sound or a video. Errors in messages are found later."""
    if not isinstance(messages, list | tuple):
        return False
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    return any(part_kind(part) for content in contents if isinstance(content, list | tuple) for part in content)


def mixed_content(content: Sequence[object], where: str) -> list[str | Media]:
    """Return the texts and media of the parts of a message.

    Raises:
        RequestError: a part is in no known form, or there are too many media.
    """
    media: list[Media] = []
    parts = take_media({"content": content}, where, media)["content"]
    following = iter(media)
    mixed: list[str | Media] = []
    for i, part in enumerate(parts):
        if isinstance(part, Mapping) and part.get("type") in KINDS:
            mixed.append(next(following))
        elif isinstance(part, Mapping) and part.get("type") in TEXT_TYPES and isinstance(part.get("text"), str):
            mixed.append(part["text"])
        else:
            raise RequestError(f"{where}.content[{i}]: expected a part with text, an image, a sound or a video")
    return mixed


def media_from_base64(text: str) -> Media:
    """Return the image, sound or video of a file in base64, by its first bytes. Raises RequestError."""
    return _CLASSES[kind_of_base64(text)].from_base64(text)


def kind_of_base64(text: str) -> MediaKind:
    """Return the kind of a file in base64 by its first bytes; "image" for any other text."""
    try:
        head = base64.b64decode(standard_base64(text[:64])[:16], validate=True)
    except ValueError:  # also letters beyond ASCII
        head = b""
    return "audio" if is_sound(head) else "video" if is_video(head) else "image"


def web_address(part: Any) -> str:
    """Return the address on the web that a part names as its image or video; empty for any other part."""
    if isinstance(part, MEDIA) or part_kind(part) not in ("image", "video"):
        return ""
    _, value = _value(part)
    is_web = isinstance(value, str) and value[:8].lower().startswith(("http://", "https://"))
    return str(value) if is_web else ""


def part_kind(part: Any) -> MediaKind | None:
    """Return the kind of medium of a part of a message; None for text and anything else."""
    if isinstance(part, MEDIA):
        return kind_of(part)
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return None
    types: Mapping[MediaKind, Sequence[str]] = {"image": IMAGE_TYPES, "audio": AUDIO_TYPES, "video": VIDEO_TYPES}
    return next((kind for kind, names in types.items() if part["type"] in names), None)


_EXAMPLES: Mapping[MediaKind, str] = {
    "image": "give it as a data: URL in image_url.url",
    "audio": "give it as base64 in input_audio.data",
    "video": "give it as a data: URL in video_url.url",
}
_CLASSES: Mapping[MediaKind, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}


def _media(part: Any, kind: MediaKind, where: str) -> Media:
    if isinstance(part, MEDIA):
        return part
    make = _CLASSES[kind]
    key, value = _value(part)
    if not key or value is None:
        raise RequestError(f"{where}: the part has no {kind}; {_EXAMPLES[kind]}")
    try:
        if isinstance(value, make):
            return value
        if isinstance(value, str):
            is_base64 = key in ("base64", "data") and not value.startswith("data:")
            return make.from_base64(value) if is_base64 else make.from_url(value)
        if isinstance(value, bool | int | float | list | tuple | Mapping | Image | Audio | Video):
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
