"""Build llama-server's answers to completions: the parts of a stream, and the whole answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pumice
from pumice_server.answer_types import TokenLogprob
from pumice_server.interface import Service, generation_settings, timings, token_logprob
from pumice_server.protocols.llama_server.answer_types import NativeChunk, NativeCompletion

_STOP_TYPES = {"length": "limit", "context_full": "limit", "timeout": "limit", "cancelled": "none"}


@dataclass(frozen=True)
class Selection:
    """The fields of an answer that a request selects."""

    tokens: bool
    fields: Sequence[str]

    def only(self, answer: NativeCompletion) -> NativeCompletion | dict[str, Any]:
        """Return the selected fields; ``a/b`` is the field b of the field a."""
        if not self.fields:
            return answer
        selected: dict[str, Any] = {}
        for name in self.fields:
            value: Any = answer
            for part in name.split("/"):
                value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
            if value is not None:
                selected[name] = value
        return selected


@dataclass
class NativeAnswer:
    """Builds the answer to one completion."""

    service: Service
    index: int
    prompt: list[int]
    options: Mapping[str, Any]
    selection: Selection
    slot: int
    text: str | None = None  # of a prompt with images, with their markers

    def whole(self, done: pumice.Completion) -> NativeCompletion:
        answer = self.end(done)
        answer.content, answer.tokens = done.text, done.tokens if self.selection.tokens else []
        if done.logprobs:
            pairs = zip(done.tokens, done.logprobs, strict=True)
            answer.completion_probabilities = [self.probability(token, logprobs) for token, logprobs in pairs]
        return answer

    def end(self, done: pumice.Completion) -> NativeCompletion:
        word = self.service.stopping_word(done, self.options["stop"])
        model = self.service.model
        return NativeCompletion(
            index=self.index,
            content="",
            tokens=[],
            id_slot=self.slot,
            stop=True,
            model=self.service.name,
            tokens_predicted=done.timings.generated_tokens,
            tokens_evaluated=done.timings.prompt_tokens,
            generation_settings=generation_settings(self.service, self.options),
            prompt=self.service.spelt(self.prompt) if self.text is None else self.text,
            has_new_line="\n" in done.text,
            truncated=done.finish_reason == "context_full" or len(self.prompt) + len(done.tokens) >= model.n_ctx,
            stop_type=_STOP_TYPES.get(done.finish_reason, "word" if word else "eos"),
            stopping_word=word,
            tokens_cached=done.timings.prompt_tokens + len(done.tokens),
            timings=timings(done.timings),
        )

    def part(self, pieces: Sequence[pumice.Piece], n_generated: int, **others: Any) -> NativeChunk:
        pairs = [(piece.token, piece.logprobs) for piece in pieces if piece.logprobs and piece.token is not None]
        return NativeChunk(
            index=self.index,
            content="".join([piece.text for piece in pieces]),
            tokens=[piece.token for piece in pieces if piece.token is not None],
            stop=False,
            id_slot=self.slot,
            tokens_predicted=n_generated,
            tokens_evaluated=len(self.prompt),
            completion_probabilities=[self.probability(*pair) for pair in pairs] or None,
            **others,
        )

    def probability(self, token: int, logprobs: pumice.Logprobs) -> TokenLogprob:
        """Return a token's log-probability, or its probability if that is taken after the sampler chain."""
        sampled = bool(self.options.get("logprobs_sampled"))
        return token_logprob(token, logprobs, self.service.token_bytes, sampled)
