"""Token ids of prompts that have embeddings among their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from pumice.errors import PromptTooLongError

if TYPE_CHECKING:
    from pumice.media_encoder import Embeddings

PromptPart: TypeAlias = "str | Embeddings"
PlacedEmbeddings: TypeAlias = "list[tuple[int, Embeddings]]"
"""Embeddings, and the position of the first row."""


def within(parts: Iterable[PromptPart], n_ctx: int) -> Iterator[PromptPart]:
    """Yield parts as long as their rows fit the context. Raises PromptTooLongError."""
    n_rows = 0
    for part in parts:
        n_rows += 0 if isinstance(part, str) else len(part.rows)
        if n_rows > n_ctx:
            raise PromptTooLongError(n_rows, n_ctx, exact=False)
        yield part


def tokenize_parts(
    parts: Iterable[PromptPart], first: Callable[[str], list[int]], following: Callable[[str], list[int]]
) -> tuple[list[int], PlacedEmbeddings]:
    """Return the token ids of texts and embeddings, with zeros at the positions of rows, and the embeddings.

    Neighbouring texts are tokenized as one.

    Args:
        parts: in the order of the prompt.
        first: tokenizes the text that begins the prompt, which may be empty.
        following: tokenizes any other text.
    """
    ids: list[int] = []
    placed: PlacedEmbeddings = []
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
            placed.append((len(ids), part))
            ids.extend([0] * len(part.rows))
    read_text()
    return ids, placed
