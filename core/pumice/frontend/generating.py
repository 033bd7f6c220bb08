"""Generation: requests made of a prompt and options, and streams of what comes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, overload

from pumice.engine import Request
from pumice.engine.prepare import check_arguments, token_ids
from pumice.errors import ModelClosedError, RequestError
from pumice.frontend.base import Base
from pumice.grammar import FORMS, Grammar, grammar_source
from pumice.pieces import Completion
from pumice.stream import AsyncStream, Stream

Prompt = str | Sequence[int]
Progress = Callable[[int, int], None] | None
S = TypeVar("S", Stream, AsyncStream)

NO_PROMPT = "the prompt must be text or a list of token ids"
MAX_TOKENS = 128  # tokens to generate, where nobody says how many
OPTIONS = frozenset(field.name for field in fields(Request)) - {"prompt", "sampling", "end_tokens"}
"""Those of ``Generating.request`` that ``Request`` has; others are parameters of the sampler chain."""


class Generating(Base):
    """Several threads and coroutines may generate at once."""

    @overload
    def generate(self, prompt: Prompt, *, n: None = None, progress: Progress = None, **options: Any) -> Completion: ...

    @overload
    def generate(self, prompt: Prompt, *, n: int, progress: Progress = None, **options: Any) -> list[Completion]: ...

    def generate(
        self, prompt: Prompt, *, n: int | None = None, progress: Progress = None, **options: Any
    ) -> Completion | list[Completion]:
        """Continue a prompt.

        Args:
            prompt: Text, or token ids that are used unchanged.
            n: Number of completions, returned as a list; the prompt is read once, and each seed is higher by one.
            progress: Called with the number of prompt tokens that have been read and with their total: first with the
                tokens found in the cache, then after each step.
            options: Options of ``request``.

        Raises:
            RequestError: The prompt does not fit, or an argument is wrong.
        """
        request = self.request(prompt, n=1 if n is None else n, **options)
        with _closing(Stream.open(self.client, request, progress)) as streams:
            completions = [stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    @overload
    async def agenerate(
        self, prompt: Prompt, *, n: None = None, progress: Progress = None, **options: Any
    ) -> Completion: ...

    @overload
    async def agenerate(
        self, prompt: Prompt, *, n: int, progress: Progress = None, **options: Any
    ) -> list[Completion]: ...

    async def agenerate(
        self, prompt: Prompt, *, n: int | None = None, progress: Progress = None, **options: Any
    ) -> Completion | list[Completion]:
        """Like ``generate``, for a coroutine."""
        request = self.request(prompt, n=1 if n is None else n, **options)
        with _closing(AsyncStream.open(self.client, request, progress)) as streams:
            completions = [await stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    def generate_many(
        self, prompts: Sequence[Prompt], *, each: Sequence[Mapping[str, Any]] | None = None, **options: Any
    ) -> list[Completion]:
        """Continue several prompts at once, each as ``generate`` would.

        Args:
            prompts: Texts, or lists of token ids.
            each: Options of single prompts, which take precedence over ``options``.
            options: Options of ``request`` for all prompts.

        Raises:
            RequestError: ``prompt_index`` is the number of the wrong prompt.
        """
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
            raise RequestError(f"prompts must be a list, not {prompts!r:.60}")
        prompts = list(prompts)
        if each is not None:
            if not isinstance(each, Sequence) or not all(isinstance(given, Mapping) for given in each):
                raise RequestError(f"each must be a list of options, a mapping for each prompt, not {each!r:.60}")
            if len(each) != len(prompts):
                raise RequestError(f"there are {len(prompts)} prompts, and options for {len(each)}")
        if not any(FORMS & given.keys() for given in each or ()):  # compiled for all at once
            options = self.prepare_options(options)
        streams: list[Stream] = []
        with _closing(streams):
            for index, prompt in enumerate(prompts):
                with _numbered(index):
                    streams.append(self.stream(prompt, **{**options, **(each[index] if each else {})}))
            return [stream.completion() for stream in streams]

    def stream(self, prompt: Prompt, *, progress: Progress = None, **options: Any) -> Stream:
        """Like ``generate``, but return pieces as they come.

        Closing the stream or leaving its loop cancels the rest.
        """
        return Stream.open(self.client, _single(self.request(prompt, **options)), progress)[0]

    def astream(self, prompt: Prompt, *, progress: Progress = None, **options: Any) -> AsyncStream:
        """Like ``stream``, for a coroutine: ``async for piece in model.astream(...)``."""
        return AsyncStream.open(self.client, _single(self.request(prompt, **options)), progress)[0]

    def request(self, prompt: Prompt, **options: Any) -> Request:
        """Return the request that ``generate`` and ``stream`` send to the engine.

        Args:
            prompt: Text, or token ids that are used unchanged.
            options: Attributes of ``pumice.engine.Request``, where ``max_tokens`` is 128 by default and ``stop`` may be
                a single text; one of ``grammar`` (GBNF or Lark), ``json_schema`` (a dictionary, JSON text, or a
                pydantic class), ``regex`` and ``choices`` (texts), which restrict the text; and parameters of the
                sampler chain: temperature, top_k, top_p, min_p, seed, repeat_penalty, ...
        """
        if self.closed:
            raise ModelClosedError("the model is closed")
        if not self.facts.generates:
            raise RequestError("this model does not generate text: it is an encoder, for embed, or drafts for others")
        ids = self.tokenize(prompt) if isinstance(prompt, str) else token_ids(prompt, NO_PROMPT)
        given = {"max_tokens": MAX_TOKENS} | {name: value for name, value in options.items() if name in OPTIONS}
        stop = given.get("stop")
        given["stop"] = [stop] if isinstance(stop, str) else [] if stop is None else stop
        given["grammar"] = self._grammar(options)
        sampling = {name: value for name, value in options.items() if name not in OPTIONS | FORMS}
        request = Request(ids, sampling=sampling, **given)
        check_arguments(request)
        return request

    def prepare_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of ``request`` with a grammar that is ready for several requests, whichever of them says it.

        Large grammars take a while; any thread may do it. Raises RequestError for one that is wrong or beyond a limit.
        """
        rest = {name: value for name, value in options.items() if name not in FORMS}
        return {**rest, "grammar": self._grammar(options)}

    def _grammar(self, options: Mapping[str, Any]) -> Grammar | None:
        """What the text has to look like, by whichever option says it."""
        if isinstance(grammar := options.get("grammar"), Grammar):
            return grammar
        source = grammar_source(**{name: value for name, value in options.items() if name in FORMS})
        if source is None:
            return None
        self._checker.check(source, lambda: self.tokenizer)
        return Grammar(source)


def _single(request: Request) -> Request:
    if request.n != 1:
        raise RequestError(f"n: a stream has one completion, not {request.n}; generate gives several")
    return request


@contextlib.contextmanager
def _closing(streams: list[S]) -> Iterator[list[S]]:
    try:
        yield streams
    finally:
        for stream in streams:
            stream.close()


@contextlib.contextmanager
def _numbered(index: int) -> Iterator[None]:
    """Errors say which prompt they are about."""
    try:
        yield
    except RequestError as error:
        error.prompt_index = index
        raise
