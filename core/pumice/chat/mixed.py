"""Prompts of texts, images, sounds and videos: media at markers, their embeddings, and token ids."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from pumice.errors import PromptTooLongError
from pumice.media.audio import Audio
from pumice.media.encoded import named_errors
from pumice.media.images import Image
from pumice.media.videos import Video

if TYPE_CHECKING:
    from pumice.embeddings import Embeddings

Media: TypeAlias = Image | Audio | Video
MEDIA = (Image, Audio, Video)
PromptPart: TypeAlias = "str | Embeddings"
EncodeMedia: TypeAlias = "Callable[[Media], Sequence[PromptPart]]"
"""Returns the texts and embeddings that stand for an image or a sound in a prompt."""
T = TypeVar("T")

AHEAD = 4  # images of a prompt that are encoded at once
MARKER = "<__media__>"
"""Stands for an image or a sound in a prompt that is shown as text, as in llama.cpp."""


def at_markers(texts: Sequence[str], media: Sequence[T]) -> Iterator[str | T]:
    """Yield the texts around the markers of a prompt, one more than ``media``, with one of these between each two."""
    yield texts[0]
    for item, text in zip(media, texts[1:], strict=True):
        yield item
        yield text


def encode_media(parts: Iterable[str | Media], encode: EncodeMedia) -> Iterator[PromptPart]:
    """Yield texts, and for each image or sound the texts and embeddings that stand for it.

    Several images are encoded at once, by threads. Raises as ``encode``; an error about one of several names its file
    or its number.
    """
    parts = list(parts)
    totals = Counter(type(part) for part in parts)
    counts: Counter[type] = Counter()
    images = [part for part in parts if isinstance(part, Image)]
    with _Ahead(images if len(images) > 1 else [], encode) as ahead:
        for part in parts:
            if isinstance(part, MEDIA):
                kind = type(part)
                counts[kind] += 1
                with named_errors(part.source, f"{counts[kind]} of {totals[kind]}" if totals[kind] > 1 else ""):
                    encoded = ahead.next() if isinstance(part, Image) and totals[kind] > 1 else encode(part)
                yield from encoded
            else:
                yield str(part)


class _Ahead:
    """Encodes images in threads, a few ahead of the next one needed; leaving the context cancels queued images."""

    def __init__(self, images: Sequence[Image], encode: EncodeMedia) -> None:
        self._images = iter(images)
        self._encode = encode
        self._threads = ThreadPoolExecutor(AHEAD, "pumice-images")
        self._coming: deque[Future[Sequence[PromptPart]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def next(self) -> Sequence[PromptPart]:
        """Return what stands for the next image. Raises as ``encode``."""
        for image in itertools.islice(self._images, AHEAD - len(self._coming)):
            self._coming.append(self._threads.submit(copy_context().run, self._encode, image))
        return self._coming.popleft().result()


def within(parts: Iterable[PromptPart], n_ctx: int) -> Iterator[PromptPart]:
    """Yield parts as long as their rows fit the context. Raises PromptTooLongError."""
    n_rows = 0
    for part in parts:
        n_rows += 0 if isinstance(part, str) else part.n_rows
        if n_rows > n_ctx:
            raise PromptTooLongError(n_rows, n_ctx, exact=False)
        yield part


def tokenize_parts(
    parts: Iterable[PromptPart], first: Callable[[str], list[int]], following: Callable[[str], list[int]]
) -> tuple[list[int], list[Embeddings]]:
    """Return the token ids of texts and embeddings, with zeros at the positions of rows, and the embeddings.

    Neighbouring texts are tokenized as one.

    Args:
        parts: in the order of the prompt.
        first: tokenizes the text that begins the prompt, which may be empty.
        following: tokenizes any other text.
    """
    ids: list[int] = []
    placed: list[Embeddings] = []
    text = ""

    def read_text() -> None:
        nonlocal text
        if not placed:
            ids.extend(first(text))
        elif text:
            ids.extend(following(text))
        text = ""

    for part in parts:
        if isinstance(part, str):
            text += part
        else:
            read_text()
            placed.append(part.at(len(ids)))
            ids.extend([0] * placed[-1].n_rows)
    read_text()
    return ids, placed
