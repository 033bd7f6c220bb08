"""What llama-server's completions tell: the parts of one while it comes, and all of it at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pumice
from pumice_server.body import Body
from pumice_server.figures import chat_logprob, timings
from pumice_server.generation_settings import generation_settings
from pumice_server.service import Service, Slot

_NO_SLOT = -1  # requests have no slot of their own here
_STOP_TYPES = {"length": "limit", "context_full": "limit", "timeout": "limit", "cancelled": "none"}


@dataclass(frozen=True)
class Wanted:
    """What is to be told beside the text."""

    tokens: bool
    fields: Sequence[str]

    @classmethod
    def read(cls, body: Body) -> Wanted:
        fields = body.get("response_fields", list, [])
        return cls(tokens=body.get("return_tokens", bool, False), fields=fields)

    def only(self, told: dict[str, Any]) -> dict[str, Any]:
        """The fields that are asked for; ``a/b`` is the field b of the field a."""
        if not self.fields:
            return told
        found: dict[str, Any] = {}
        for name in self.fields:
            value: Any = told
            for part in name.split("/"):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                found[name] = value
        return found


@dataclass
class NativeAnswer:
    """What is told of one completion."""

    service: Service
    index: int
    prompt: list[int]
    options: Mapping[str, Any]
    wanted: Wanted
    slot: Slot

    def whole(self, done: pumice.Completion) -> dict[str, Any]:
        told = self.end(done)
        told |= {"content": done.text, "tokens": done.tokens if self.wanted.tokens else []}
        if done.logprobs:
            found = zip(done.tokens, done.logprobs, strict=True)
            told["completion_probabilities"] = [self.probability(token, each) for token, each in found]
        return told

    def end(self, done: pumice.Completion) -> dict[str, Any]:
        word = self.service.stopping_word(done, self.options["stop"])
        model = self.service.model
        if 0 <= self.slot[1] < model.config.n_parallel:
            self.service.slots[self.slot] = [*self.prompt, *done.tokens[:-1]]  # the last is not computed
        return {
            "index": self.index,
            "content": "",
            "tokens": [],
            "id_slot": _NO_SLOT,
            "stop": True,
            "model": self.service.name,
            "tokens_predicted": done.timings.generated_tokens,
            "tokens_evaluated": done.timings.prompt_tokens,
            "generation_settings": generation_settings(self.service, self.options),
            "prompt": self.service.spelt(self.prompt),
            "has_new_line": "\n" in done.text,
            "truncated": done.finish_reason == "context_full" or len(self.prompt) + len(done.tokens) >= model.n_ctx,
            "stop_type": _STOP_TYPES.get(done.finish_reason, "word" if word else "eos"),
            "stopping_word": word,
            "tokens_cached": done.timings.prompt_tokens + len(done.tokens),
            "timings": timings(done.timings),
        }

    def part(self, pieces: Sequence[pumice.Piece], n_generated: int) -> dict[str, Any]:
        tokens = [piece.token for piece in pieces if piece.token is not None]
        told = self.begun(n_generated, "".join([piece.text for piece in pieces]), tokens)
        found = [(each.token, each.logprobs) for each in pieces if each.logprobs and each.token is not None]
        if found:
            told["completion_probabilities"] = [self.probability(*each) for each in found]
        return told

    def begun(self, n_generated: int, text: str = "", tokens: Sequence[int] = ()) -> dict[str, Any]:
        return {
            "index": self.index,
            "content": text,
            "tokens": tokens,
            "stop": False,
            "id_slot": _NO_SLOT,
            "tokens_predicted": n_generated,
            "tokens_evaluated": len(self.prompt),
        }

    def probability(self, token: int, found: Any) -> dict[str, Any]:
        """Its logarithm; where it is that of the candidates that were left, itself."""
        told = chat_logprob(token, found, self.service.token_bytes)
        if not self.options.get("logprobs_sampled"):
            return told
        top = told.pop("top_logprobs")
        return {**_without_logarithm(told), "top_probs": [_without_logarithm(each) for each in top]}


def _without_logarithm(entry: dict[str, Any]) -> dict[str, Any]:
    logprob = entry.pop("logprob")
    return {**entry, "prob": math.exp(logprob)}
