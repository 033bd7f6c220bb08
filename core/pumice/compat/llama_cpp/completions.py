"""Completions of ``Llama``: a request, and its results as dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pumice
from pumice import Logprobs
from pumice.compat.llama_cpp import results
from pumice.compat.llama_cpp.options import CompletionOptions


@dataclass
class CompletionRun:
    """One text to complete.

    Attributes:
        prompt: The prompt as it was given.
        request: What generates the text.
        appended: Text after the generated one, from a model that cannot fill in.
        echo: The text begins with the prompt.
        n_top: Number of log-probabilities beside each token's; None for none.
        tokens: Tokens of the prompt and of the text so far.
    """

    model: pumice.Model
    prompt: str | Sequence[int]
    request: pumice.Request
    appended: str
    echo: bool
    n_top: int | None
    tokens: list[int] = field(default_factory=list)

    @classmethod
    def prepare(
        cls,
        model: pumice.Model,
        prompt: str | Sequence[int],
        suffix: str | None,
        max_tokens: int | None,
        options: CompletionOptions,
        chosen: pumice.GenerateOptions,
    ) -> CompletionRun:
        """Return the run of a prompt. Raises RequestError, and ValueError for a prompt that does not fit."""
        tokenizer, n_top = model.tokenizer, options.get("logprobs")
        fills = suffix is not None and {"fim_pre", "fim_suf", "fim_mid"} <= tokenizer.fim.keys()
        given = prompt
        if not len(prompt):
            given = [tokenizer.bos] if tokenizer.bos is not None else prompt
        chosen |= {"logprobs": n_top, "echo": bool(options.get("echo")), "max_tokens": max_tokens}
        chosen["suffix"] = suffix if fills else None
        request = model.request(given, **chosen)
        n_prompt, n_ctx = len(request.prompt), model.n_ctx
        if n_prompt >= n_ctx:
            raise ValueError(f"Requested tokens ({n_prompt}) exceed context window of {n_ctx}")
        appended = suffix if suffix is not None and not fills else ""
        return cls(model, prompt, request, appended, bool(options.get("echo")), n_top, list(request.prompt))

    def whole(self, name: str) -> results.CreateCompletionResponse:
        """Return the completion."""
        completion = self.model.generate(self.request)
        n_prompt, n_generated = len(self.request.prompt), completion.timings.generated_tokens
        self.tokens += completion.tokens
        logprobs = None
        if self.n_top is not None:
            tokens, entries = self._echoed() if self.echo else ([], [])
            tokens, entries = [*tokens, *completion.tokens], [*entries, *(completion.logprobs or [])]
            offset = 0 if self.echo else len(self.prompt)
            logprobs = results.completion_logprobs(self.model.tokenizer, tokens, entries, offset)
        reason = results.finish_reason(completion.finish_reason)
        result = results.Envelope.new(name).text(completion.text + self.appended, logprobs, reason)
        result["usage"] = results.usage(n_prompt, n_generated)
        return result

    def _echoed(self) -> tuple[list[int], list[Logprobs | None]]:
        """Return the tokens of the prompt after BOS with their log-probabilities; the first has none."""
        tokens = list(self.request.prompt)
        entries: list[Logprobs | None] = [None, *self.model.score(tokens, self.n_top or 0)]
        begin = 1 if tokens[0] == self.model.tokenizer.bos else 0
        return tokens[begin:], [None, *entries[begin + 1 :]]

    def stream(self, name: str) -> Iterator[results.CreateCompletionResponse]:
        """Yield the completion by parts; the last has no text, and says why it ended."""
        part, offset = results.Envelope.new(name), len(self.prompt)
        with self.model.stream(self.request) as pieces:
            for piece in pieces:
                logprobs = None
                if piece.token is not None:
                    self.tokens.append(piece.token)
                if piece.token is not None and piece.logprobs is not None:
                    logprobs = results.completion_logprobs(
                        self.model.tokenizer, [piece.token], [piece.logprobs], offset
                    )
                    offset += len(logprobs["tokens"][0])
                if piece.text or logprobs:
                    yield part.text(piece.text, logprobs, None)
                if piece.finish_reason:
                    yield part.text("", None, results.finish_reason(piece.finish_reason))
