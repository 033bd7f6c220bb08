"""Prompts of completions: texts, token ids, both mixed, and fill-in-the-middle."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException

import pumice
from pumice.plugin.unstable import MAX_IMAGES, at_markers, media_from_base64
from pumice_server.errors import bad_request
from pumice_server.limits import MAX_PROMPTS
from pumice_server.models.model_texts import TextOrTokens
from pumice_server.models.service import MediaPrompt, Service

MEDIA_MARKER = os.environ.get("LLAMA_MEDIA_MARKER") or f"<__media_{secrets.token_hex(16)}__>"
"""Stands for an image or a sound in a prompt; random, so that texts of others do not contain it, unless it is named."""

_MARKS = ("fim_pre", "fim_suf", "fim_mid")


def read_prompts(prompts: Any) -> list[TextOrTokens]:
    """Return prompts that are a text, token ids, or a list of these. Raises HTTPException."""
    if isinstance(prompts, str) or (
        isinstance(prompts, list) and prompts and all(isinstance(item, int) for item in prompts)
    ):
        prompts = [prompts]
    if not isinstance(prompts, list) or not all(_is_prompt(item) for item in prompts):
        raise bad_request("prompt must be text, a list of token ids, or a list of these")
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        raise bad_request(f"prompt: 1 to {MAX_PROMPTS} prompts are served at once, not {len(prompts)}")
    return prompts


def prompt_string(prompt: Any) -> Any:
    """Return the text of llama-server's object of a prompt; anything else as it is. Raises HTTPException for images."""
    if not isinstance(prompt, Mapping):
        return prompt
    if prompt.get("multimodal_data"):
        raise bad_request("multimodal_data is not supported here; send it to /completion or /embeddings")
    return prompt.get("prompt_string")


def media_prompt(prompt: object) -> MediaPrompt | None:
    """Return llama-server's object of a prompt with media; None for any other prompt. Raises HTTPException."""
    data = prompt.get("multimodal_data") if isinstance(prompt, Mapping) else None
    if not data or not isinstance(prompt, Mapping):
        return None
    text = prompt.get("prompt_string")
    if not isinstance(text, str) or not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise bad_request("prompt: expected a text as prompt_string, and a list of base64 as multimodal_data")
    if len(data) > MAX_IMAGES:
        raise bad_request(f"multimodal_data: at most {MAX_IMAGES} images, sounds and videos, not {len(data)}")
    texts = text.split(MEDIA_MARKER)
    if len(texts) != len(data) + 1:
        raise bad_request(
            f"prompt_string has {len(texts) - 1} markers for {len(data)} files of multimodal_data; "
            "the marker is media_marker of /props"
        )
    return MediaPrompt(text, list(at_markers(texts, list(map(media_from_base64, data)))))


def is_mixed(prompt: object) -> bool:
    """Return True for a list of texts and token ids, which is one prompt."""
    return isinstance(prompt, list) and {type(part) for part in prompt} == {int, str}


def mixed_tokens(
    parts: Sequence[str | int], service: Service, add_special: bool, parse_special: bool = True
) -> list[int]:
    """Return the tokens of texts and token ids. Raises PromptTooLongError."""
    tokens: list[int] = []
    for i, part in enumerate(parts):
        tokens += [part] if isinstance(part, int) else service.tokens_of(part, add_special and i == 0, parse_special)
        if len(tokens) > service.model.n_ctx:
            raise pumice.PromptTooLongError(len(tokens), service.model.n_ctx, exact=False)
    return tokens


def fill_in(
    service: Service, prefix: TextOrTokens, suffix: TextOrTokens, before_middle: Sequence[int] = ()
) -> list[int]:
    """Return a fill-in-the-middle prompt. Raises HTTPException if the model has no infill tokens.

    ``before_middle`` follows the prefix.
    """
    check_fills_in(service)
    first, last = [service.tokens_of(part, False, False) for part in (prefix, suffix)]
    return service.model.tokenizer.fill_in([*first, *before_middle], last)


def check_fills_in(service: Service) -> None:
    """Raise HTTPException if the vocabulary lacks a token that marks prefix, suffix or middle."""
    missing = [name for name in _MARKS if name not in service.model.tokenizer.fim]
    if missing:
        raise HTTPException(501, f"this model cannot fill in text: its vocabulary has no {', '.join(missing)}")


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, int) for item in value))
