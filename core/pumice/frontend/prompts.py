"""Prompts as users give them, as token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pumice.chat.mixed import MEDIA, Media
from pumice.embeddings import Embeddings
from pumice.engine.requests.arguments import check_ids, token_ids
from pumice.errors import RequestError
from pumice.frontend.engine import ModelEngine
from pumice.tokenizers import Tokenizer
from pumice.wording import show_python

Rows = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Prompt = str | Sequence[int] | Sequence[str | Media] | Sequence[str | Rows]
PromptProgress = Callable[[int, int], None] | None

NO_PROMPT = "the prompt must be text, a list of token ids, or a list of texts, images and sounds"
NO_ROWS = "a prompt with rows must be a list of texts and arrays"
NO_TEXT = "the prompt must be text or a list of token ids"


def contains(prompt: object, kinds: type | tuple[type, ...]) -> bool:
    """Return True for a list with a part of one of these types."""
    return isinstance(prompt, (list, tuple)) and any(isinstance(part, kinds) for part in prompt)


def mixed_parts(parts: Sequence[object], wrong: str) -> list[str | Media]:
    """Return the texts and media of a list. Raises RequestError, whose message begins with ``wrong``, for others."""
    mixed: list[str | Media] = []
    for part in parts:
        if not isinstance(part, (str, *MEDIA)):
            raise RequestError(f"{wrong}, not {show_python(part)}")
        mixed.append(part)
    return mixed


def rows_and_texts(tokenizer: Tokenizer, parts: Sequence[object], n_embd: int) -> tuple[list[int], list[Embeddings]]:
    """Return the token ids of texts and of rows, which are 0, and the rows.

    Raises RequestError for other parts, and for rows of a wrong shape.
    """
    ids: list[int] = []
    placed: list[Embeddings] = []
    for part in parts:
        if isinstance(part, str):
            ids += tokenizer.tokenize_following(part) if ids else tokenizer.tokenize(part)
            continue
        if not isinstance(part, np.ndarray):
            raise RequestError(f"{NO_ROWS}, not {show_python(part)}")
        if part.ndim != 2 or part.shape[1] != n_embd or not len(part) or part.dtype.kind != "f":
            raise RequestError(f"rows of a prompt must be floats [n, {n_embd}], not {part.dtype} {list(part.shape)}")
        rows = part.astype(np.float32)
        if not np.isfinite(rows).all():
            raise RequestError("rows of a prompt must be finite; these contain NaN or infinity")
        placed.append(Embeddings(rows, kind="audio", start=len(ids)))  # read from left to right
        ids += [0] * len(rows)
    return ids, placed


def prompt_ids(engine: ModelEngine, prompt: object) -> list[int]:
    """Return the token ids of a text, or token ids as they are. Raises RequestError for anything else."""
    ids = engine.tokenizer().tokenize(prompt) if isinstance(prompt, str) else token_ids(prompt, NO_TEXT)
    check_ids(ids, engine.facts.n_vocab)
    return ids
