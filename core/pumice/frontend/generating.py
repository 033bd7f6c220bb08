"""Generation: requests made of a prompt and options, and streams of their text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from pumice.chat.mixed import MEDIA, Media
from pumice.engine import Request
from pumice.engine.messages import Span
from pumice.engine.requests.arguments import check_arguments, token_ids
from pumice.errors import ModelClosedError, RequestError
from pumice.frontend.base import Base
from pumice.grammar import Grammar, ReasoningBudget, grammar_source, read_triggers
from pumice.options import (
    GENERATE,
    OUTPUT,
    REQUEST,
    CountedOptions,
    GenerateOptions,
    SortedOptions,
    documented,
    merge_options,
    sort_options,
)
from pumice.streaming.pieces import Completion
from pumice.streaming.stream import AsyncStream, Stream
from pumice.tracebacks import short_traceback
from pumice.wording import show_python

Prompt = str | Sequence[int] | Sequence[str | Media]
PromptProgress = Callable[[int, int], None] | None
S = TypeVar("S", Stream, AsyncStream)
_documented = documented(GENERATE)

NO_PROMPT = "the prompt must be text, a list of token ids, or a list of texts, images and sounds"


class Generating(Base):
    """Generation with a model. Several threads and coroutines may generate at once."""

    @overload
    def generate(
        self, prompt: Prompt, *, n: None = None, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> Completion: ...

    @overload
    def generate(
        self, prompt: Prompt, *, n: int, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> list[Completion]: ...

    @short_traceback
    @_documented
    def generate(
        self,
        prompt: Prompt,
        *,
        n: int | None = None,
        progress: PromptProgress = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion]:
        """Continue a prompt.

        Args:
            prompt: Text, token ids that are used unchanged, or a list of texts, ``pumice.Image``,
                ``pumice.Audio`` and ``pumice.Video``, in order.
            n: Number of completions, returned as a list; the prompt is read once, and each seed is higher by one.
            progress: Called with the number of prompt tokens that have been read and with their total: first with the
                tokens found in the cache, then after each step.

        Returns:
            A completion; with ``n`` a list of completions.

        Raises:
            RequestError: The prompt does not fit, or an argument is wrong.
        """
        request = self.request(prompt, n=1 if n is None else n, **options)
        with _closing(Stream.open(self.client, request, progress)) as streams:
            completions = [stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    @overload
    async def agenerate(
        self, prompt: Prompt, *, n: None = None, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> Completion:
        """Like ``generate``, for a coroutine; the event loop runs on while media are encoded."""

    @overload
    async def agenerate(
        self, prompt: Prompt, *, n: int, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> list[Completion]: ...

    @short_traceback
    @_documented
    async def agenerate(
        self,
        prompt: Prompt,
        *,
        n: int | None = None,
        progress: PromptProgress = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion]:
        """Like ``generate``, for a coroutine."""
        request = await self._arequest(prompt, n=1 if n is None else n, **options)
        with _closing(AsyncStream.open(self.client, request, progress)) as streams:
            completions = [await stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    @short_traceback
    @_documented
    def generate_many(
        self,
        prompts: Sequence[Prompt],
        *,
        each: Sequence[GenerateOptions] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Completion]:
        """Continue several prompts at once, each as ``generate`` would.

        Args:
            prompts: Texts, lists of token ids, or lists of texts and media as for ``generate``.
            each: Options of single prompts, which take precedence over those for all prompts.

        Returns:
            A completion for each prompt.

        Raises:
            RequestError: ``prompt_index`` is the number of the wrong prompt.
        """
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
            raise RequestError(f"prompts must be a list, not {show_python(prompts)}")
        prompts = list(prompts)
        if each is not None:
            if not isinstance(each, Sequence) or not all(isinstance(single, Mapping) for single in each):
                raise RequestError(
                    f"each must be a list of options, a mapping for each prompt, not {show_python(each)}"
                )
            if len(each) != len(prompts):
                raise RequestError(f"there are {len(prompts)} prompts, and options for {len(each)}")
        shared: Mapping[str, Any] = options
        if not any(OUTPUT.keys() & single.keys() for single in each or ()):  # one grammar for all prompts
            shared = self.prepare_options(options)
        streams: list[Stream] = []
        with _closing(streams):
            for index, prompt in enumerate(prompts):
                with _numbered(index):
                    streams.append(self.stream(prompt, **merge_options(shared, each[index] if each else {})))
            return [stream.completion() for stream in streams]

    @short_traceback
    @_documented
    def stream(self, prompt: Prompt, *, progress: PromptProgress = None, **options: Unpack[GenerateOptions]) -> Stream:
        """Like ``generate``, but return pieces as they are generated.

        Closing the stream or leaving its loop cancels the rest.
        """
        return Stream.open(self.client, single(self.request(prompt, **options)), progress)[0]

    @short_traceback
    @_documented
    def astream(
        self, prompt: Prompt, *, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> AsyncStream:
        """Like ``stream``, for a coroutine: ``async for piece in model.astream(...)``.

        A thread encodes images and sounds when the first piece is wanted, which then raises the errors of the request.
        """
        if _contains(prompt, MEDIA):
            return AsyncStream.later(self.client, lambda: single(self.request(prompt, **options)), progress)
        return AsyncStream.open(self.client, single(self.request(prompt, **options)), progress)[0]

    @documented({"n": REQUEST["n"], **GENERATE})
    def request(self, prompt: Prompt, **options: Unpack[CountedOptions]) -> Request:
        """Return the request that ``generate`` and ``stream`` send to the engine.

        Args:
            prompt: Text, token ids that are used unchanged, or a list of texts, ``pumice.Image``,
                ``pumice.Audio`` and ``pumice.Video``, in order.

        Raises:
            RequestError: An option is wrong, or this model does not generate text.
        """
        parts = sort_options(options)
        if parts.template:
            raise RequestError(f"{next(iter(parts.template))} is an option of chats: use chat or chat_stream")
        return self._request(prompt, parts)

    async def _arequest(self, prompt: Prompt, **options: Unpack[CountedOptions]) -> Request:
        """Like ``request``; the event loop does not wait while media are decoded and encoded."""
        if not _contains(prompt, MEDIA):
            return self.request(prompt, **options)
        from asyncio import to_thread

        return await to_thread(self.request, prompt, **options)

    def _request(
        self,
        prompt: Prompt,
        options: SortedOptions,
        budget: ReasoningBudget | None = None,
        media: Sequence[Span] = (),
    ) -> Request:
        """Return a request; ``media`` is that of a prompt of token ids."""
        if self.closed:
            raise ModelClosedError("the model is closed")
        if not self.facts.generates:
            raise RequestError("this model does not generate text: it is an encoder, for embed, or drafts for others")
        ids, read = self._read(prompt, options.request.get("cache_salt", ""))
        media = media or read
        settings = {"max_tokens": REQUEST["max_tokens"].default, **options.request}
        stop = settings.get("stop")
        settings["stop"] = [stop] if isinstance(stop, str) else () if stop is None else stop
        grammar = self._grammar(options.output)
        request = Request(ids, sampling=options.sampling, grammar=grammar, budget=budget, media=media, **settings)
        check_arguments(request)
        if "" in request.stop:
            raise RequestError("stop: a text is empty, which would end every answer; leave it out")
        return request

    def _read(self, prompt: Prompt, salt: str) -> tuple[list[int], list[Span]]:
        """Return the token ids of a prompt, with those of media left open, and its media."""
        if isinstance(prompt, str):
            return self.tokenize(prompt), []
        if not _contains(prompt, (str, *MEDIA)):
            return token_ids(prompt, NO_PROMPT), []
        mixed: list[str | Media] = []
        for part in prompt:
            if not isinstance(part, (str, *MEDIA)):
                raise RequestError(f"{NO_PROMPT}, not {show_python(part)}")
            mixed.append(part)
        return self._read_mixed(mixed, salt)

    def prepare_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Compile the grammar of a request in advance.

        The options that describe the text, such as ``json_schema``, become one compiled ``grammar``. Large grammars can
        take seconds; any thread may compile them, and requests may share the result.

        Args:
            options: Keywords of ``generate``.

        Returns:
            Keywords for ``generate`` and ``stream``.

        Raises:
            RequestError: The grammar is wrong or beyond a limit.
        """
        rest = {name: value for name, value in options.items() if name not in OUTPUT}
        return {**rest, "grammar": self._grammar(sort_options(options).output)}

    def _grammar(self, output: Mapping[str, Any]) -> Grammar | None:
        """Return the grammar of the text, whichever option describes it."""
        if isinstance(grammar := output.get("grammar"), Grammar):
            return grammar
        forms = dict(output)
        triggers = forms.pop("grammar_triggers", None)
        source = grammar_source(**forms)
        begins = read_triggers(triggers, source)
        if source is None:
            return None
        self._checker.check(source, lambda: self.tokenizer)
        return Grammar(source, begins)


def single(request: Request) -> Request:
    """Return a request for one completion. Raises RequestError if it asks for several."""
    if request.n != 1:
        raise RequestError(f"n: a stream has one completion, not {request.n}; generate gives several")
    return request


def _contains(prompt: object, kinds: type | tuple[type, ...]) -> bool:
    """Return True for a list with a part of one of these types."""
    return isinstance(prompt, (list, tuple)) and any(isinstance(part, kinds) for part in prompt)


@contextlib.contextmanager
def _closing(streams: list[S]) -> Iterator[list[S]]:
    try:
        yield streams
    finally:
        for stream in streams:
            stream.close()


@contextlib.contextmanager
def _numbered(index: int) -> Iterator[None]:
    """Add the number of the prompt to errors."""
    try:
        yield
    except RequestError as error:
        error.prompt_index = index
        raise
