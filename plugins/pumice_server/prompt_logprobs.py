"""Completions that begin with their prompt, and log-probabilities of prompts, as OpenAI's completions and vLLM tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.figures import LEAST_LOGPROB, TokenLogprob
from pumice_server.service import Prompt, Service
from pumice_server.work import aside

_ENTRY_BYTES = 1024  # of what is told of a token of the prompt

Found = tuple[int, TokenLogprob | None]
"""A token and its log-probabilities; the first of a text has none."""


class _Likely(NamedTuple):
    """As many of the likeliest tokens as are asked for, and the log-probability of the one that is there."""

    logprob: float
    top: Sequence[tuple[int, float]]


class Head(NamedTuple):
    """What of a prompt comes before or beside its completion.

    Attributes:
        text: of the prompt, where it is to be repeated; ``logprobs``: of its tokens, where those are asked for too.
        told: the field ``prompt_logprobs``.
    """

    text: str = ""
    logprobs: Sequence[Found] = ()
    told: Sequence[Mapping[str, Any] | None] = ()

    @property
    def size(self) -> int:
        """Bytes or so of what is told."""
        return len(self.text) + _ENTRY_BYTES * (len(self.logprobs) + len(self.told))


async def read_head(body: Body, service: Service, prompt: Prompt, options: Mapping[str, Any]) -> Head:
    """Raises HTTPException and RequestError."""
    echo = body.get("echo", bool, False)
    n_told = body.integer("prompt_logprobs", 0) if "prompt_logprobs" in body.fields else -1
    if n_told >= 0 and body.get("stream", bool, False):
        raise bad_request("prompt_logprobs come with a whole answer: leave out stream")
    n_echoed = options.get("logprobs", -1) if echo else -1
    if not echo and n_told < 0:
        return Head()
    (tokens,) = await service.read_prompts([prompt])
    if not tokens:
        raise bad_request("the prompt has no tokens: give some text")
    text = "" if not echo else prompt if isinstance(prompt, str) else await service.detokenize(tokens)
    if max(n_told, n_echoed) < 0:
        return Head(text)
    known: list[TokenLogprob | None] = [None, *await service.score(tokens, max(n_told, n_echoed), options)]
    return await aside(_head, service, text, list(zip(tokens, known, strict=True)), (n_told, n_echoed))


def _head(service: Service, text: str, scored: Sequence[Found], numbers: tuple[int, int]) -> Head:
    n_told, n_echoed = numbers
    echoed = [(token, each and _Likely(each.logprob, each.top[:n_echoed])) for token, each in scored]
    told = [None if each is None else _by_id(service, token, each, n_told) for token, each in scored]
    return Head(text, echoed if n_echoed >= 0 else (), told if n_told >= 0 else ())


def text_logprobs(service: Service, found: Iterable[Found], offset: int = 0) -> dict[str, Any]:
    """OpenAI's form for completions, of tokens that begin so many characters after the text's beginning."""

    told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token, each in found:
        told["tokens"].append(_spelt(service, token))
        told["token_logprobs"].append(each and max(each.logprob, LEAST_LOGPROB))
        told["top_logprobs"].append(
            each and {_spelt(service, other): max(value, LEAST_LOGPROB) for other, value in each.top}
        )
        told["text_offset"].append(offset)
        offset += len(service.model.tokenizer.token_bytes(token).decode("utf-8", "replace"))  # of BOS none are shown
    return told


def _by_id(service: Service, token: int, found: TokenLogprob, n_top: int) -> dict[str, Any]:
    """vLLM's form: by the id of each token that is told, the one of the prompt among them; ranks begin at 1."""
    top = found.top[:n_top]
    told = {
        str(other): {"logprob": max(value, LEAST_LOGPROB), "rank": rank, "decoded_token": _spelt(service, other)}
        for rank, (other, value) in enumerate(top, 1)
    }
    own = {"logprob": max(found.logprob, LEAST_LOGPROB), "decoded_token": _spelt(service, token)}
    return {str(token): {"rank": None, **own}, **told}


def _spelt(service: Service, token: int) -> str:
    return service.token_bytes(token).decode("utf-8", "replace")
