"""Prompts of completions: texts, token ids, both mixed, and what stands between a prefix and a suffix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException

import pumice
from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.limits import MAX_IDS, MAX_PROMPTS
from pumice_server.service import Prompt, Service

_MARKS = ("fim_pre", "fim_suf", "fim_mid")


def read_prompts(body: Body) -> list[Prompt]:
    """The prompts: a text, token ids, or a list of these. Raises HTTPException."""
    given = body.first("prompt")
    if isinstance(given, list) and any(len(each) > MAX_IDS for each in (given, *given) if isinstance(each, list)):
        raise bad_request(f"prompt: a list of at most {MAX_IDS} token ids")
    if isinstance(given, str) or (isinstance(given, list) and given and all(_is_id(each) for each in given)):
        given = [given]
    if not isinstance(given, list) or not all(_is_prompt(each) for each in given):
        raise bad_request("prompt must be text, a list of token ids, or a list of these")
    if not 1 <= len(given) <= MAX_PROMPTS:
        raise bad_request(f"prompt: 1 to {MAX_PROMPTS} prompts are served at once, not {len(given)}")
    return given


def prompt_string(given: Any) -> Any:
    """The text in llama-server's object of a prompt; anything else as it is. Raises HTTPException for images in it."""
    if not isinstance(given, Mapping):
        return given
    if given.get("multimodal_data"):
        raise bad_request("multimodal_data is not supported: this model sees no images")
    return given.get("prompt_string")


def mixed_tokens(
    given: Sequence[str | int], service: Service, add_special: bool, parse_special: bool = True
) -> list[int]:
    """Of texts and token ids."""
    tokens: list[int] = []
    for i, each in enumerate(given):
        tokens += [each] if isinstance(each, int) else service.tokens_of(each, add_special and i == 0, parse_special)
        if len(tokens) > service.model.n_ctx:
            raise pumice.PromptTooLongError(len(tokens), service.model.n_ctx, exact=False)
    return tokens


def fill_in(service: Service, prefix: Prompt, suffix: Prompt, before_middle: Sequence[int] = ()) -> list[int]:
    """The prompt for what stands between two texts (fill-in-the-middle). Raises HTTPException: not every model can.

    ``before_middle`` stands at the end of the prefix.
    """
    marks, tokenizer = fim_marks(service), service.model.tokenizer
    bos = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    first, last = [service.tokens_of(part, False, False) for part in (prefix, suffix)]
    return [*bos, marks["fim_pre"], *first, *before_middle, marks["fim_suf"], *last, marks["fim_mid"]]


def fim_marks(service: Service) -> dict[str, int]:
    """The tokens that mark prefix, suffix and middle, by name."""
    marks: dict[str, int] = dict(service.model.tokenizer.fim)
    missing = [name for name in _MARKS if name not in marks]
    if missing:
        raise HTTPException(501, f"this model was not made to fill in: its vocabulary has no {', '.join(missing)}")
    return marks


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(_is_id(each) for each in value))
