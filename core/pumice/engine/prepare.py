"""From a request to a generation: its arguments checked, its sampler chain built, its prompt seen by the samplers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.engine.generation import Generation
from pumice.engine.messages import Request
from pumice.engine.text import TextStream
from pumice.errors import PromptTooLongError, RequestError
from pumice.sampler import Chain, Sampler, SamplerContext
from pumice.tokenizers import Tokenizer


@dataclass(frozen=True)
class Preparer:
    """Prepares requests for one model. It has no state: any thread may, while the engine computes.

    Attributes:
        samplers: all known, by name; ``order``: the names of the chain; ``sampling``: parameters of every request.
    """

    n_ctx: int
    n_vocab: int
    load_tokenizer: Callable[[], Tokenizer | None]
    samplers: Mapping[str, type[Sampler]]
    order: Sequence[str]
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, id: int, request: Request) -> Generation:
        """Raises RequestError for a prompt that is empty or does not fit, and for wrong parameters."""
        self._check_prompt(request.prompt)
        tokenizer = self.load_tokenizer()
        context = SamplerContext(n_vocab=self.n_vocab, tokenizer=tokenizer)
        chain = Chain.build(self.samplers, self.order, {**self.sampling, **request.sampling}, context)
        for token in request.prompt:
            chain.accept(token)
        end_tokens = request.end_tokens
        if end_tokens is None:
            end_tokens = tokenizer.eog if tokenizer else frozenset()
        begins = tokenizer is not None and request.prompt[0] == tokenizer.bos
        text = TextStream(tokenizer, request.stop, request.special)
        return Generation(id, request, chain, text, end_tokens, n_keep=int(begins))

    def _check_prompt(self, prompt: Sequence[int]) -> None:
        if not prompt:
            raise RequestError("the prompt has no tokens: give some text")
        check_ids(prompt, self.n_vocab)
        if len(prompt) > self.n_ctx:
            raise PromptTooLongError(len(prompt), self.n_ctx)


def check_ids(ids: Sequence[int], n_vocab: int) -> None:
    """Raise RequestError for a token that the model does not have."""
    for token in ids:
        if not 0 <= token < n_vocab:
            raise RequestError(f"token id {token} is outside the vocabulary of {n_vocab}")
