"""Seconds and token counts of one generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]


@dataclass
class Timings:
    """Seconds and token counts of one sequence.

    Attributes:
        prompt_tokens: tokens of the prompt.
        prompt_cached: tokens of the prompt that were read from the KV cache.
        queue_seconds: seconds until the engine started to read the prompt.
        prompt_seconds: seconds of reading the prompt, which include the first generated token.
        generated_tokens: generated tokens.
        generation_seconds: seconds of generating the tokens after the first.
        n_drafts: drafts that the model verified.
        n_drafted: tokens of these drafts together.
        n_accepted: drafted tokens that the model accepted.
        accepted_at: accepted tokens by their position in a draft, from 0.
        n_predicted: drafted tokens of the request's ``prediction``.
        n_predicted_accepted: those of them that the model accepted.
        drafts_exact: False if drafts were verified by a backend whose results depend on the number of rows in a step:
            the text may then differ from the text without drafts, as it may between two batches.
    """

    prompt_tokens: _Count = 0
    prompt_cached: _Count = 0
    queue_seconds: _Seconds = 0.0
    prompt_seconds: _Seconds = 0.0
    generated_tokens: _Count = 0
    generation_seconds: _Seconds = 0.0
    n_drafts: _Count = 0
    n_drafted: _Count = 0
    n_accepted: _Count = 0
    accepted_at: list[_Count] = field(default_factory=list)
    n_predicted: _Count = 0
    n_predicted_accepted: _Count = 0
    drafts_exact: bool = True

    def drafted(self, n_tokens: int, n_accepted: int, is_predicted: bool = False) -> None:
        """Count a draft of which the first ``n_accepted`` tokens were right; ``is_predicted``: of the prediction."""
        if is_predicted:
            self.n_predicted += n_tokens
            self.n_predicted_accepted += n_accepted
        self.n_drafts += 1
        self.n_drafted += n_tokens
        self.n_accepted += n_accepted
        self.accepted_at += [0] * (n_accepted - len(self.accepted_at))
        for i in range(n_accepted):
            self.accepted_at[i] += 1

    @property
    def prompt_per_second(self) -> float:
        """Tokens per second of the prompt, without the cached ones; 0 before the prompt is read."""
        return (self.prompt_tokens - self.prompt_cached) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def generation_per_second(self) -> float:
        """Generated tokens per second after the first token, which the prompt's last step yields; 0 before it."""
        return (self.generated_tokens - 1) / self.generation_seconds if self.generation_seconds else 0.0
