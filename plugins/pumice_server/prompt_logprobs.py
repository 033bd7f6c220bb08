"""Completions that repeat their prompt, and log-probabilities of prompts, in the forms of OpenAI and vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pumice_server.bodies import CompletionBody
from pumice_server.errors import bad_request
from pumice_server.figures import LEAST_LOGPROB, HasLogprob
from pumice_server.service import Service, TextOrTokens
from pumice_server.work import aside

_ENTRY_BYTES = 1024  # approximate bytes of a prompt token's entry

Found = tuple[int, HasLogprob | None]
"""A token and its log-probabilities; the first token of a text has none."""


class _Likely(NamedTuple):
    """Log-probability of a token, and the most probable tokens at its position."""

    logprob: float
    top: Sequence[tuple[int, float]]


class PromptReport(NamedTuple):
    """The parts of an answer that report its prompt.

    Attributes:
        text: Prompt to repeat.
        logprobs: Log-probabilities of the repeated prompt's tokens.
        by_position: The field ``prompt_logprobs``.
    """

    text: str = ""
    logprobs: Sequence[Found] = ()
    by_position: Sequence[Mapping[str, Any] | None] = ()

    @property
    def size(self) -> int:
        """Approximate bytes in an answer."""
        return len(self.text) + _ENTRY_BYTES * (len(self.logprobs) + len(self.by_position))


async def read_head(
    body: CompletionBody, service: Service, prompt: TextOrTokens, options: Mapping[str, Any]
) -> PromptReport:
    """Return the parts of an answer that report a prompt. Raises HTTPException and RequestError."""
    echo = body.echo
    n_told = -1 if body.prompt_logprobs is None else body.prompt_logprobs
    if n_told >= 0 and body.stream:
        raise bad_request("prompt_logprobs cannot be streamed: leave out stream")
    n_echoed = options.get("logprobs", -1) if echo else -1
    if not echo and n_told < 0:
        return PromptReport()
    (tokens,) = await service.read_prompts([prompt])
    if not tokens:
        raise bad_request("the prompt is empty: log-probabilities need at least one token")
    text = "" if not echo else prompt if isinstance(prompt, str) else await service.detokenize(tokens)
    if max(n_told, n_echoed) < 0:
        return PromptReport(text)
    scores: list[HasLogprob | None] = [None, *await service.score(tokens, max(n_told, n_echoed), options)]
    return await aside(_head, service, text, list(zip(tokens, scores, strict=True)), (n_told, n_echoed))


def _head(service: Service, text: str, scored: Sequence[Found], numbers: tuple[int, int]) -> PromptReport:
    n_told, n_echoed = numbers
    echoed = [(token, score and _Likely(score.logprob, score.top[:n_echoed])) for token, score in scored]
    by_position = [None if score is None else _by_id(service, token, score, n_told) for token, score in scored]
    return PromptReport(text, echoed if n_echoed >= 0 else (), by_position if n_told >= 0 else ())


def text_logprobs(service: Service, tokens: Iterable[Found], offset: int = 0) -> dict[str, Any]:
    """Return log-probabilities in the form of OpenAI's completions; ``offset`` is that of the first token."""

    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token, score in tokens:
        lists["tokens"].append(_spelt(service, token))
        lists["token_logprobs"].append(score and max(score.logprob, LEAST_LOGPROB))
        lists["top_logprobs"].append(
            score and {_spelt(service, other): max(value, LEAST_LOGPROB) for other, value in score.top}
        )
        lists["text_offset"].append(offset)
        offset += len(service.model.tokenizer.token_bytes(token).decode("utf-8", "replace"))  # of BOS none are shown
    return lists


def _by_id(service: Service, token: int, score: HasLogprob, n_top: int) -> dict[str, Any]:
    """Return vLLM's form: an entry by token id, the prompt's token among them; ranks begin at 1."""
    top = score.top[:n_top]
    entries = {
        str(other): {"logprob": max(value, LEAST_LOGPROB), "rank": rank, "decoded_token": _spelt(service, other)}
        for rank, (other, value) in enumerate(top, 1)
    }
    own = {"logprob": max(score.logprob, LEAST_LOGPROB), "decoded_token": _spelt(service, token)}
    return {str(token): {"rank": None, **own}, **entries}


def _spelt(service: Service, token: int) -> str:
    return service.token_bytes(token).decode("utf-8", "replace")
