"""Completions that repeat their prompt, and log-probabilities of prompts, in the formats of OpenAI and vLLM."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pumice
from pumice_server.interface import LEAST_LOGPROB, HasLogprob, Service, TextOrTokens, aside, bad_request
from pumice_server.protocols.openai.bodies import CompletionBody

_ENTRY_BYTES = 1024  # approximate bytes of a prompt token's entry

Found = tuple[int, HasLogprob | None]
"""A token and its log-probabilities; the first token of a text has none."""


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
    echoed = [(token, score and pumice.Logprobs(score.logprob, score.top[:n_echoed])) for token, score in scored]
    by_position = [None if score is None else _by_id(service, token, score, n_told) for token, score in scored]
    return PromptReport(text, echoed if n_echoed >= 0 else (), by_position if n_told >= 0 else ())


class TextLogprobs:
    """Log-probabilities of one completion in the format of OpenAI's completions, in parts of any length.

    The offset of a token is that of its first character. Tokens that begin inside of a character have its offset.
    """

    def __init__(self, service: Service, head: PromptReport) -> None:
        self._service = service
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._n_read = 0  # characters of the tokens so far
        echoed = b"".join(self._shown(token) for token, _ in head.logprobs).decode("utf-8", "replace")
        # The tokens of a prompt may have a space in front that its text has not; without them, the prompt counts whole.
        self._shift = len(head.text) - len(echoed)

    def of(self, tokens: Iterable[Found]) -> dict[str, Any]:
        """Return the format of the next tokens."""
        lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, score in tokens:
            lists["tokens"].append(self._name(token))
            lists["token_logprobs"].append(score and max(score.logprob, LEAST_LOGPROB))
            lists["top_logprobs"].append(score and self._top(token, score))
            lists["text_offset"].append(max(0, self._n_read + self._shift))
            self._n_read += len(self._decoder.decode(self._shown(token)))
        return lists

    def _top(self, token: int, score: HasLogprob) -> dict[str, float]:
        """Return the most probable tokens by their names, which are unique; the chosen token has its plain name."""
        owners, top = {self._name(token): token}, dict[str, float]()
        for other, value in score.top:
            name = self._name(other)
            if owners.setdefault(name, other) != other:
                name = _as_bytes(self._service.token_bytes(other))
            top.setdefault(name, max(value, LEAST_LOGPROB))
        return top

    def _name(self, token: int) -> str:
        """Return a token's text, or OpenAI's spelling of bytes that are no whole characters."""
        data = self._service.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return _as_bytes(data)

    def _shown(self, token: int) -> bytes:
        """Return the bytes of a token in the text, which shows no special tokens."""
        return self._service.model.tokenizer.token_bytes(token)


def _as_bytes(data: bytes) -> str:
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _by_id(service: Service, token: int, score: HasLogprob, n_top: int) -> dict[str, Any]:
    """Return vLLM's format: an entry by token id, the prompt's token among them; ranks begin at 1."""
    top = score.top[:n_top]
    entries = {
        str(other): {"logprob": max(value, LEAST_LOGPROB), "rank": rank, "decoded_token": _spelt(service, other)}
        for rank, (other, value) in enumerate(top, 1)
    }
    own = {"logprob": max(score.logprob, LEAST_LOGPROB), "decoded_token": _spelt(service, token)}
    return {str(token): {"rank": None, **own}, **entries}


def _spelt(service: Service, token: int) -> str:
    return service.token_bytes(token).decode("utf-8", "replace")
