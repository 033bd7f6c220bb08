"""A loaded model: generate, chat, embed, rank and score, wherever its engine runs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from pumice.chat.mixed import MEDIA
from pumice.chat.tools import MAX_TURNS
from pumice.engine import Request
from pumice.engine.messages import Logprobs, Pooling, Terms
from pumice.errors import RequestError
from pumice.frontend.hidden import hidden_states
from pumice.frontend.loaded import LoadedModel
from pumice.frontend.media import Texts
from pumice.frontend.prompts import Prompt, PromptProgress, contains
from pumice.frontend.scoring import scores
from pumice.media.audio import Audio
from pumice.options import (
    CHAT,
    GENERATE,
    OUTPUT,
    QUEUE,
    REQUEST,
    ChatOptions,
    CountedOptions,
    GenerateOptions,
    QueueOptions,
    documented,
    merge_options,
)
from pumice.streaming.pieces import Completion
from pumice.streaming.stream import AsyncStream, Stream
from pumice.tracebacks import short_traceback
from pumice.wording import show_python, unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.chat import ChatCompletion, Messages  # imported by the first chat
    from pumice.frontend.tool_loop import RunTools
    from pumice.streaming.chat import AsyncChatStream, ChatStream, PreparedChat

    Rows = NDArray[np.float32]
    States = dict[int | str, Rows]

S = TypeVar("S", Stream, AsyncStream)
Adapters = Mapping[str, float] | None
OneText = str | Sequence[int]
ManyTexts = Sequence[str] | Sequence[Sequence[int]]
Layers = Sequence[int | str]
_generates = documented(GENERATE)
_chats = documented(CHAT, max_tokens=None)
_queues = documented(QUEUE)


class EmbedOptions(QueueOptions, total=False):
    """Keywords of ``embed`` beside ``pooling``, which decides its result."""

    normalize: bool
    dimensions: int | None
    adapters: Adapters
    truncate: bool


class Model(LoadedModel):
    """A loaded model. ``pumice.load`` and ``pumice.load_process`` return one.

    A model is a context manager; any number of threads and coroutines may use it at once.
    """

    @documented({"n": REQUEST["n"], **GENERATE})
    def request(self, prompt: Prompt, **options: Unpack[CountedOptions]) -> Request:
        """Return a checked request, which ``generate``, ``stream`` and their like take in place of a prompt.

        A grammar can take seconds to check; any thread may do that. ``dataclasses.replace`` makes a variant.

        Args:
            prompt: As in ``generate``.

        Raises:
            RequestError: An option is wrong, or this model does not generate text.
        """
        return self._requests(prompt, options)

    @overload
    def generate(
        self,
        prompt: Prompt | Request,
        *,
        n: None = None,
        progress: PromptProgress = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...

    @overload
    def generate(
        self, prompt: Prompt, *, n: int, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> list[Completion]: ...

    @short_traceback
    @_generates
    def generate(
        self,
        prompt: Prompt | Request,
        *,
        n: int | None = None,
        progress: PromptProgress = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion]:
        """Continue a prompt.

        Args:
            prompt: Text, token ids that are used unchanged, or a list of texts, ``pumice.Image``,
                ``pumice.Audio`` and ``pumice.Video``, in order; or a list of texts and rows of embeddings, float32
                ``[n, n_embd]``, in place of tokens; or what ``request`` returned.
            n: Number of completions, returned as a list; the prompt is read once, and each seed is higher by one.
            progress: Called with the number of prompt tokens that have been read and with their total: first with the
                tokens found in the cache, then after each step.

        Returns:
            A completion; with ``n`` a list of completions.

        Raises:
            RequestError: The prompt does not fit, or an argument is wrong.
        """
        request = self._requests(prompt, options if n is None else {**options, "n": n})
        with _closing(Stream.open(self.engine.client, request, progress)) as streams:
            completions = [stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    @overload
    async def agenerate(
        self,
        prompt: Prompt | Request,
        *,
        n: None = None,
        progress: PromptProgress = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...

    @overload
    async def agenerate(
        self, prompt: Prompt, *, n: int, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> list[Completion]: ...

    @short_traceback
    @_generates
    async def agenerate(
        self,
        prompt: Prompt | Request,
        *,
        n: int | None = None,
        progress: PromptProgress = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion | list[Completion]:
        """Like ``generate``, for a coroutine; the event loop runs on while media are encoded."""
        every: Mapping[str, Any] = options if n is None else {**options, "n": n}
        if contains(prompt, MEDIA):
            from asyncio import to_thread

            request = await to_thread(self._requests, prompt, every)
        else:
            request = self._requests(prompt, every)
        with _closing(AsyncStream.open(self.engine.client, request, progress)) as streams:
            completions = [await stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    @short_traceback
    @_generates
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
            shared = self._requests.with_grammar(options)
        streams: list[Stream] = []
        with _closing(streams):
            for index, prompt in enumerate(prompts):
                with _numbered(index):
                    request = self._requests.one(prompt, merge_options(shared, each[index] if each else {}))
                    streams += Stream.open(self.engine.client, request)
            return [stream.completion() for stream in streams]

    @short_traceback
    @_generates
    def stream(
        self, prompt: Prompt | Request, *, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> Stream:
        """Like ``generate``, but return pieces as they are generated.

        Closing the stream or leaving its loop cancels the rest.
        """
        return Stream.open(self.engine.client, self._requests.one(prompt, options), progress)[0]

    @short_traceback
    @_generates
    def astream(
        self, prompt: Prompt | Request, *, progress: PromptProgress = None, **options: Unpack[GenerateOptions]
    ) -> AsyncStream:
        """Like ``stream``, for a coroutine: ``async for piece in model.astream(...)``.

        A thread encodes images and sounds when the first piece is wanted, which then raises the errors of the request.
        """
        client = self.engine.client
        if contains(prompt, MEDIA):
            return AsyncStream.later(client, lambda: self._requests.one(prompt, options), progress)
        return AsyncStream.open(client, self._requests.one(prompt, options), progress)[0]

    @short_traceback
    @_chats
    def chat(
        self,
        messages: Messages | PreparedChat,
        *,
        progress: PromptProgress = None,
        run_tools: RunTools = False,
        max_tool_turns: int = MAX_TURNS,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion:
        """Return the assistant's next message.

        Args:
            messages: The conversation so far: a text of the user, or messages that ``chat`` returned, or objects with
                ``role`` and ``content``, which is text, or a list of texts, ``pumice.Image``, ``pumice.Audio`` and
                ``pumice.Video``; or what ``template.prepare`` returned.
            progress: Called with the number of prompt tokens that have been read and with their total.
            run_tools: Run the calls of functions and ``Tool`` objects among ``tools``, and let the model read their
                results, until it answers in text. A function is asked before each call; ``True`` runs it, and any
                other value refuses it. After the first answer ``tool_choice`` is "auto".
            max_tool_turns: Maximum number of answers; calls in the last one are returned, and not run.

        Raises:
            RequestError: The template refuses the messages, the prompt does not fit, or an option is wrong. With
                ``run_tools`` the attribute ``messages`` of an error has the answers and results before it.
        """
        if run_tools is False:
            with self.chat_stream(messages, progress=progress, **options) as stream:
                return stream.completion()
        from pumice.frontend.tool_loop import ToolLoop

        loop = ToolLoop(self, messages, options, run_tools, max_tool_turns)
        loop.check_sync()
        with loop.attach_messages():
            while True:
                with self.chat_stream(loop.messages, progress=progress, **loop.options) as stream:
                    completion = stream.completion()
                calls = loop.calls(completion)
                if not calls:
                    return loop.result(completion)
                loop.run(calls)

    @short_traceback
    @_chats
    async def achat(
        self,
        messages: Messages | PreparedChat,
        *,
        progress: PromptProgress = None,
        run_tools: RunTools = False,
        max_tool_turns: int = MAX_TURNS,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion:
        """Like ``chat``, for a coroutine. Functions of tools may be async; the calls of an answer run together."""
        if run_tools is False:
            async with self.achat_stream(messages, progress=progress, **options) as stream:
                return await stream.completion()
        from pumice.frontend.tool_loop import ToolLoop

        loop = ToolLoop(self, messages, options, run_tools, max_tool_turns)
        with loop.attach_messages():
            while True:
                async with self.achat_stream(loop.messages, progress=progress, **loop.options) as stream:
                    completion = await stream.completion()
                calls = loop.calls(completion)
                if not calls:
                    return loop.result(completion)
                await loop.arun(calls)

    @short_traceback
    @_chats
    def chat_stream(
        self, messages: Messages | PreparedChat, *, progress: PromptProgress = None, **options: Unpack[ChatOptions]
    ) -> ChatStream:
        """Like ``chat``, but return deltas as they are generated.

        Closing the stream or leaving its loop cancels the rest.
        """
        from pumice.streaming.chat import ChatStream

        return ChatStream.open(self.engine.client, self.template.prepared(messages, options), progress)

    @short_traceback
    @_chats
    def achat_stream(
        self, messages: Messages | PreparedChat, *, progress: PromptProgress = None, **options: Unpack[ChatOptions]
    ) -> AsyncChatStream:
        """Like ``chat_stream``, for a coroutine: ``async for delta in model.achat_stream(...)``.

        A thread encodes images and sounds when the first delta is wanted, which then raises the errors of the request.
        """
        from pumice.chat.media import has_media
        from pumice.frontend.template import check_streamed
        from pumice.streaming.chat import AsyncChatStream

        client = self.engine.client
        if has_media(messages):
            check_streamed(options)
            return AsyncChatStream.later(client, lambda: self.template.prepared(messages, options), progress)
        return AsyncChatStream.open(client, self.template.prepared(messages, options), progress)

    @overload
    def embed(self, texts: Texts, *, pooling: Literal["none"], **options: Unpack[EmbedOptions]) -> list[Rows]: ...

    @overload
    def embed(
        self, texts: Texts, *, pooling: Literal["mean", "cls", "last"] | None = None, **options: Unpack[EmbedOptions]
    ) -> Rows: ...

    @short_traceback
    @_queues
    def embed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Adapters = None,
        truncate: bool = False,
        **options: Unpack[QueueOptions],
    ) -> Rows | list[Rows]:
        """Return the embeddings of texts.

        Args:
            texts: Texts, or lists of token ids; with a model that sees or hears also ``pumice.Image`` and
                ``pumice.Audio``. A list of texts, images and sounds within the list is one input.
            normalize: Scale each vector to length 1.
            dimensions: Keep only this many of the first values, for models trained for that; None keeps all.
            pooling: Which hidden states become the vector: "mean", "cls" or "last". None follows the model's file, else
                the last state of a decoder and the mean of an encoder. "none" returns the states of all tokens.
            adapters: Scale of each adapter by name; None as configured.
            truncate: Cut texts and token ids that are longer than the context, instead of raising RequestError.

        Returns:
            float32 ``[n, n_embd]``; without pooling, as "none" or the file says, a list of float32
            ``[n_tokens, n_embd]``.

        Raises:
            RequestError: The model has no embeddings, a text does not fit, or an argument is wrong.
        """
        return self._embedder.embed(
            texts, normalize, dimensions, pooling, adapters, _terms(self.embed, options), truncate
        ).wait()

    @overload
    async def aembed(
        self, texts: Texts, *, pooling: Literal["none"], **options: Unpack[EmbedOptions]
    ) -> list[Rows]: ...

    @overload
    async def aembed(
        self, texts: Texts, *, pooling: Literal["mean", "cls", "last"] | None = None, **options: Unpack[EmbedOptions]
    ) -> Rows: ...

    @short_traceback
    @_queues
    async def aembed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Adapters = None,
        truncate: bool = False,
        **options: Unpack[QueueOptions],
    ) -> Rows | list[Rows]:
        """Like ``embed``, for a coroutine."""
        return await self._embedder.embed(
            texts, normalize, dimensions, pooling, adapters, _terms(self.aembed, options), truncate
        ).awaited()

    @short_traceback
    @_queues
    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        adapters: Adapters = None,
        *,
        truncate: bool = False,
        **options: Unpack[QueueOptions],
    ) -> list[float]:
        """Score documents by their relevance for a query.

        Args:
            query: Text of the query.
            documents: Texts to score.
            adapters: Scale of each adapter by name; None as configured.
            truncate: Cut documents that do not fit the context beside the query, instead of raising RequestError.

        Returns:
            A score for each document, in the order of ``documents``; higher is more relevant.

        Raises:
            RequestError: The model has no classifier, or a text does not fit the context.
        """
        return self._embedder.rank(query, documents, adapters, _terms(self.rerank, options), truncate).wait()

    @short_traceback
    @_queues
    async def arerank(
        self,
        query: str,
        documents: Sequence[str],
        adapters: Adapters = None,
        *,
        truncate: bool = False,
        **options: Unpack[QueueOptions],
    ) -> list[float]:
        """Like ``rerank``, for a coroutine."""
        return await self._embedder.rank(query, documents, adapters, _terms(self.arerank, options), truncate).awaited()

    @short_traceback
    @_queues
    def score(
        self,
        prompt: str | Sequence[int],
        n_top: int = 0,
        *,
        adapters: Adapters = None,
        cache_salt: str = "",
        **options: Unpack[QueueOptions],
    ) -> Sequence[Logprobs]:
        """Return the log-probability of each token of a prompt after the first.

        Args:
            prompt: Text, or token ids that are used unchanged.
            n_top: Number of most probable tokens to return beside each token.
            adapters: Scale of each adapter by name; None as configured.
            cache_salt: Share cached prefixes only with requests that have the same salt.

        Raises:
            RequestError: The model has no such probabilities, the prompt does not fit, or an argument is wrong.
        """
        return scores(self.engine, prompt, n_top, adapters, cache_salt, _terms(self.score, options)).wait()

    @short_traceback
    @_queues
    async def ascore(
        self,
        prompt: str | Sequence[int],
        n_top: int = 0,
        *,
        adapters: Adapters = None,
        cache_salt: str = "",
        **options: Unpack[QueueOptions],
    ) -> Sequence[Logprobs]:
        """Like ``score``, for a coroutine."""
        return await scores(self.engine, prompt, n_top, adapters, cache_salt, _terms(self.ascore, options)).awaited()

    @short_traceback
    @_queues
    def logits(
        self,
        ids: Sequence[int],
        prompt: Sequence[int] | Sequence[Audio] = (),
        adapters: Adapters = None,
        first: int = 0,
        **options: Unpack[QueueOptions],
    ) -> Rows:
        """Return the logits after each token of a new sequence. The engine must be in this process (``pumice.load``).

        Args:
            ids: Token ids; those of the decoder, if an encoder reads the prompt.
            prompt: What an encoder-decoder's encoder reads: token ids, or a list of one ``pumice.Audio``.
            adapters: Scale of each adapter by name; None as configured.
            first: Position of the first token whose logits are wanted; those before it come from the KV cache, as far
                as it has them.

        Returns:
            float32 ``[len(ids) - first, n_vocab]``.

        Raises:
            RequestError: The tokens do not fit, an argument is wrong, or the engine is in another process.
        """
        read: tuple[Sequence[int], Sequence[Any]] = self._requests.read(prompt, "") if len(prompt) else ((), ())
        return self.engine.logits(ids, *read, adapters, first, _terms(self.logits, options))

    @overload
    def hidden(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, texts: OneText, layers: Layers, adapters: Adapters = None, **options: Unpack[QueueOptions]
    ) -> States: ...

    @overload
    def hidden(
        self, texts: ManyTexts, layers: Layers, adapters: Adapters = None, **options: Unpack[QueueOptions]
    ) -> list[States]: ...

    @short_traceback
    @_queues
    def hidden(
        self, texts: OneText | ManyTexts, layers: Layers, adapters: Adapters = None, **options: Unpack[QueueOptions]
    ) -> States | list[States]:
        """Return the hidden states of layers for each token.

        Args:
            texts: A text or token ids, or a list of several, which are computed together.
            layers: ``3`` is the residual stream after layer 3, the fourth; ``"embeddings"`` the one before layer 0;
                ``"3.attention"`` and ``"3.ffn"`` what attention and feed-forward network of layer 3 add to it.
            adapters: Scale of each adapter by name; None as configured.

        Returns:
            float32 ``[n_tokens, n_embd]`` by layer; of several texts a list.

        Raises:
            RequestError: The model has no such layer, or a text does not fit.
        """
        several = _are_several(texts)
        listed = texts if several else [texts]
        states = hidden_states(self.engine, listed, layers, adapters, _terms(self.hidden, options)).wait()
        return states if several else states[0]

    @overload
    async def ahidden(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, texts: OneText, layers: Layers, adapters: Adapters = None, **options: Unpack[QueueOptions]
    ) -> States: ...

    @overload
    async def ahidden(
        self, texts: ManyTexts, layers: Layers, adapters: Adapters = None, **options: Unpack[QueueOptions]
    ) -> list[States]: ...

    @short_traceback
    @_queues
    async def ahidden(
        self, texts: OneText | ManyTexts, layers: Layers, adapters: Adapters = None, **options: Unpack[QueueOptions]
    ) -> States | list[States]:
        """Like ``hidden``, for a coroutine."""
        several = _are_several(texts)
        listed = texts if several else [texts]
        states = await hidden_states(self.engine, listed, layers, adapters, _terms(self.ahidden, options)).awaited()
        return states if several else states[0]


def _terms(method: Callable[..., object], options: Mapping[str, Any]) -> Terms:
    """Return the terms of a request. Raises RequestError for an option that the method does not have."""
    if unknown := options.keys() - QUEUE:
        known = inspect.signature(method).parameters.values()
        optional = [parameter.name for parameter in known if parameter.default is not parameter.empty]
        raise RequestError(unknown_name("option", min(unknown), optional))
    return Terms(**options)


def _are_several(texts: Sequence[object]) -> bool:
    """Return True for a list of texts, False for a text or token ids."""
    return isinstance(texts, (list, tuple)) and any(not isinstance(text, Integral) for text in texts)


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
