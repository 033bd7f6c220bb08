"""The front of a model: tokens, chat templates, requests and streams; all that needs no weights.

Its engine is at the other end of an ``EngineClient``: in a thread, in another process, on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, Self, TypeVar, overload

from pumice.chat import OPTIONS, Chat, ChatCompletion, ChatRequest, Messages, Turn
from pumice.chat.isolated import Renderer
from pumice.chat_stream import AsyncChatStream, ChatStream
from pumice.config import Config
from pumice.embedding import Embedder, Texts
from pumice.engine import EngineClient, Request, Snapshot
from pumice.engine.messages import Algorithm, Diffusion, Facts, Pooling
from pumice.engine.prepare import check_arguments, token_ids
from pumice.errors import ModelClosedError, RequestError, TokenizerError
from pumice.gguf import GGUFFile
from pumice.grammar import FORMS, Grammar, grammar_source
from pumice.opening import is_lora
from pumice.registry import Registry
from pumice.stream import AsyncStream, Completion, Stream
from pumice.tokenizers import Tokenizer, from_metadata

Prompt = str | Sequence[int]
Progress = Callable[[int, int], None] | None
S = TypeVar("S", Stream, AsyncStream)
T = TypeVar("T")


class Frontend(ABC):
    """What all models have, wherever they compute. Use as a context manager, or ``close`` it.

    Several threads and coroutines may generate at once. ``client`` speaks to the engine; ``facts`` says what that is.
    """

    def __init__(self, file: GGUFFile, config: Config, registry: Registry, client: EngineClient, facts: Facts) -> None:
        self.config = config
        self.client = client
        self.facts = facts
        self._file = file
        self._load_tokenizer = TokenizerOf(file, registry)
        self._formats = registry.chat_formats
        self._renderer: Renderer | None = None  # of chat templates; None: in this process

    # --- what the model is

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the GGUF file."""
        return self._file.metadata

    @property
    def n_ctx(self) -> int:
        return self.facts.n_ctx

    @property
    def backends(self) -> list[str]:
        """Names of the backends that compute it, the one with most operations first."""
        return self.facts.backends

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held, by purpose: weights, kv_cache, activations."""
        return self.facts.memory

    @property
    def n_vocab(self) -> int:
        """Entries of a row of logits."""
        return self.facts.n_vocab

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @property
    def error(self) -> Exception | None:
        """Why the engine ended by itself; None while it runs, or was closed."""
        return None

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises TokenizerError if the file describes none that is known."""
        return self._load_tokenizer()

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of ``text``.

        ``add_special`` adds the tokens that begin and end a text; ``parse_special`` reads ``<|im_end|>`` and the
        like as one token.
        """
        return self.tokenizer.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        return self.tokenizer.detokenize(ids)

    # --- chat

    def apply_template(self, messages: Messages, **options: Any) -> str:
        """The prompt that the chat template makes of messages; ``options`` are the attributes of ``ChatRequest``.

        Without BOS where ``tokenize`` adds it, so that ``generate`` takes it as it is.
        """
        return self._chat.text(ChatRequest.read(messages, **options))

    def chat(self, messages: Messages, **options: Any) -> ChatCompletion:
        """The assistant's next message.

        Args:
            messages: the chat so far: messages that ``chat`` gave, or objects with ``role`` and ``content``.
            options: those of ``ChatRequest`` (tools, tool_choice, reasoning, ...) and those of ``request``; without
                ``max_tokens`` the model goes on until it ends.

        Raises RequestError for messages that the template refuses, a prompt that does not fit or a wrong parameter.
        """
        with self.chat_stream(messages, **options) as stream:
            return stream.completion()

    async def achat(self, messages: Messages, **options: Any) -> ChatCompletion:
        """As ``chat``, for a coroutine."""
        async with self.achat_stream(messages, **options) as stream:
            return await stream.completion()

    def chat_stream(self, messages: Messages, *, max_tokens: int | None = None, **options: Any) -> ChatStream:
        """As ``chat``, in deltas as they come. Closing the stream, or leaving its loop, cancels the rest."""
        turn, options = self._turn(messages, options)
        return ChatStream(
            turn, lambda ids, n: self.stream(ids, max_tokens=n, grammar=turn.grammar_after(ids), **options), max_tokens
        )

    def achat_stream(
        self, messages: Messages | Turn, *, max_tokens: int | None = None, **options: Any
    ) -> AsyncChatStream:
        """As ``chat_stream``, for a coroutine: ``async for delta in model.achat_stream(...)``.

        ``messages`` may also be what ``prepare_chat`` made of them with the same options.
        """
        turn, options = self._turn(messages, options)
        return AsyncChatStream(
            turn, lambda ids, n: self.astream(ids, max_tokens=n, grammar=turn.grammar_after(ids), **options), max_tokens
        )

    def prepare_chat(self, messages: Messages, **options: Any) -> Turn:
        """What ``chat`` makes of messages before it generates. Long ones take a while; any thread may do it.

        Raises as ``chat``, but for a prompt that does not fit.
        """
        request = ChatRequest.read(messages, **{k: v for k, v in options.items() if k in OPTIONS})
        form = {k: v for k, v in options.items() if k in FORMS}
        return self._chat.turn(request, grammar_source(**form, response_format=request.response_format))

    def _turn(self, messages: Messages | Turn, options: Mapping[str, Any]) -> tuple[Turn, dict[str, Any]]:
        """The turn, and the options of its generation."""
        turn = messages if isinstance(messages, Turn) else self.prepare_chat(messages, **options)
        rest = {k: v for k, v in options.items() if k not in OPTIONS and k not in FORMS}
        return turn, {"special": turn.special, **rest}

    @cached_property
    def loras(self) -> list[str]:
        """Names of its LoRA adapters; its other adapters are control vectors."""
        return [name for name, options in self.config.adapters.items() if is_lora(options.file)]

    @cached_property
    def _chat(self) -> Chat:
        template = self.config.chat_template or None
        return Chat(self.metadata, self.tokenizer, self._formats, template, self._renderer)

    # --- running it

    @overload
    def generate(self, prompt: Prompt, *, n: None = None, progress: Progress = None, **options: Any) -> Completion: ...

    @overload
    def generate(self, prompt: Prompt, *, n: int, progress: Progress = None, **options: Any) -> list[Completion]: ...

    def generate(
        self, prompt: Prompt, *, n: int | None = None, progress: Progress = None, **options: Any
    ) -> Completion | list[Completion]:
        """Complete ``prompt``: text, or token ids taken as they are.

        Args:
            n: so many completions, as a list; the prompt is read once, and each has a seed higher by one.
            progress: called with how many tokens of the prompt are read, and of how many.
            options: those of ``request``.

        Raises RequestError for a prompt that does not fit or a wrong argument.
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
        """As ``generate``, for a coroutine."""
        request = self.request(prompt, n=1 if n is None else n, **options)
        with _closing(AsyncStream.open(self.client, request, progress)) as streams:
            completions = [await stream.completion() for stream in streams]
        return completions[0] if n is None else completions

    def generate_many(
        self, prompts: Sequence[Prompt], *, each: Sequence[Mapping[str, Any]] | None = None, **options: Any
    ) -> list[Completion]:
        """Complete several prompts at once, each as ``generate`` would alone.

        ``each`` has options of single prompts, which go before ``options``. Raises RequestError, with the number of the
        prompt in ``prompt_index``.
        """
        if each is not None and len(each) != len(prompts):
            raise RequestError(f"there are {len(prompts)} prompts, and options for {len(each)}")
        streams: list[Stream] = []
        with _closing(streams):
            for index, prompt in enumerate(prompts):
                with _numbered(index):
                    streams.append(self.stream(prompt, **{**options, **(each[index] if each else {})}))
            return [stream.completion() for stream in streams]

    def stream(self, prompt: Prompt, *, progress: Progress = None, **options: Any) -> Stream:
        """As ``generate``, piece by piece as it comes. Closing the stream, or leaving its loop, cancels the rest."""
        return Stream.open(self.client, _single(self.request(prompt, **options)), progress)[0]

    def astream(self, prompt: Prompt, *, progress: Progress = None, **options: Any) -> AsyncStream:
        """As ``stream``, for a coroutine: ``async for piece in model.astream(...)``."""
        return AsyncStream.open(self.client, _single(self.request(prompt, **options)), progress)[0]

    def request(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = 128,
        stop: str | Sequence[str] | None = None,
        stop_tokens: Sequence[int] = (),
        context_shift: bool = False,
        n_ctx: int | None = None,
        n: int = 1,
        logprobs: int | None = None,
        logprobs_sampled: bool = False,
        cache_salt: str = "",
        priority: int = 0,
        timeout: float | None = None,
        special: Collection[int] = (),
        samplers: Sequence[str] | None = None,
        grammar: str | Grammar | None = None,
        json_schema: Any = None,
        regex: str | None = None,
        choices: Sequence[str] | None = None,
        adapters: Mapping[str, float] | None = None,
        diffusion_steps: int | None = None,
        diffusion_algorithm: Algorithm = "confidence",
        block_length: int | None = None,
        cfg_scale: float = 0.0,
        **sampling: Any,
    ) -> Request:
        """What ``generate`` and ``stream`` send to the engine.

        Args:
            max_tokens: most tokens to generate; None or -1: until the model ends, or the context is full.
            stop: strings that end the generation; they are left out.
            stop_tokens: token ids that do.
            context_shift: when the context is full, forget its older half and go on.
            n_ctx: positions that this sequence may have; None: as many as the model.
            n: how many completions.
            logprobs: log-probabilities of each token and of so many of the likeliest; None: none. They are those of
                the model; with ``logprobs_sampled`` those after the sampler chain.
            cache_salt: only requests with an equal one share what the cache holds of equal prefixes.
            priority: requests with a higher one come first.
            timeout: seconds after which it ends, waiting or generating; None: any number.
            special: control tokens that are spelt out in the text.
            samplers: names of the chain's samplers, first to last; None: the configured ones.
            grammar: what the text has to look like, in GBNF or Lark.
            json_schema: the same as a JSON schema: a dictionary, JSON text, or a class of pydantic.
            regex: the same as a regular expression.
            choices: the same as a list of texts.
            adapters: how strong each of the model's adapters is, by its name: 1 as it was made, 0 for those that are
                not named; None: all as the configuration says.
            diffusion_steps: of a model that generates by diffusion; None: one a token.
            diffusion_algorithm: which positions it fills first: those of the highest "confidence", of the least
                "entropy", of the largest "margin" between the best two, or, by chance, "random" or "origin".
            block_length: tokens that it fills before those after them; None: all at once.
            cfg_scale: how far it goes away from what it would say without the prompt.
            sampling: parameters of the sampler chain: temperature, top_k, top_p, min_p, seed, repeat_penalty,
                ignore_eos, ...
        """
        if self.closed:
            raise ModelClosedError("the model is closed")
        if not self.facts.generates:
            raise RequestError("this model does not generate text: it is an encoder; use embed")
        if not isinstance(grammar, Grammar):
            source = grammar_source(grammar, json_schema, regex, choices)
            grammar = Grammar(source) if source else None
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else None
        request = Request(
            token_ids(prompt, "the prompt must be text or a list of token ids") if tokens is None else tokens,
            max_tokens=max_tokens,
            sampling=sampling,
            samplers=samplers,
            stop=[stop] if isinstance(stop, str) else [] if stop is None else stop,
            stop_tokens=stop_tokens,
            context_shift=context_shift,
            n_ctx=n_ctx,
            n=n,
            logprobs=logprobs,
            logprobs_sampled=logprobs_sampled,
            cache_salt=cache_salt,
            priority=priority,
            timeout=timeout,
            special=frozenset(special),
            grammar=grammar,
            adapters=adapters,
            diffusion=Diffusion(diffusion_steps, diffusion_algorithm, block_length, cfg_scale),
        )
        check_arguments(request)
        return request

    # --- embeddings

    def embed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Mapping[str, float] | None = None,
    ) -> Any:
        """Texts, or lists of token ids, as vectors: float32 ``[n, n_embd]``, with one text too.

        Args:
            normalize: make each of length 1.
            dimensions: only so many of the first values, for models trained for that; None: all.
            pooling: "mean", "cls", "last": which hidden states count; None: as the model's file says, else the last of
                a decoder's and the mean of an encoder's. "none": a list with float32 ``[n_tokens, n_embd]`` for each.
            adapters: as in ``request``.

        Raises RequestError for a model that gives no embeddings, a text that does not fit or a wrong argument.
        """
        with self._waiting(self._embedder.embed(texts, pooling, dimensions, adapters)) as values:
            return self._embedder.finish(values, normalize, dimensions)

    async def aembed(
        self,
        texts: Texts,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        pooling: Pooling | None = None,
        adapters: Mapping[str, float] | None = None,
    ) -> Any:
        """As ``embed``, for a coroutine."""
        values = await asyncio.wrap_future(self._embedder.embed(texts, pooling, dimensions, adapters))
        return self._embedder.finish(values, normalize, dimensions)

    def rerank(self, query: str, documents: Sequence[str], adapters: Mapping[str, float] | None = None) -> list[float]:
        """How well each document answers a query: the model's score, higher is better, in the order of ``documents``.

        Raises RequestError for a model without a classifier, or texts that do not fit.
        """
        with self._waiting(self._embedder.rank(query, documents, adapters)) as values:
            return [float(scores[0]) for scores in values]

    async def arerank(
        self, query: str, documents: Sequence[str], adapters: Mapping[str, float] | None = None
    ) -> list[float]:
        """As ``rerank``, for a coroutine."""
        values = await asyncio.wrap_future(self._embedder.rank(query, documents, adapters))
        return [float(scores[0]) for scores in values]

    @cached_property
    def _embedder(self) -> Embedder:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return Embedder(self)

    @contextlib.contextmanager
    def _waiting(self, future: Future[T]) -> Iterator[T]:
        """The result of a future, which is cancelled where nobody waits any more."""
        try:
            yield future.result()
        finally:
            future.cancel()

    def snapshot(self) -> Snapshot:
        """What the engine has in hand: sequences that wait and run, blocks of the cache in use."""
        return self.client.snapshot()

    # --- ending it

    @abstractmethod
    def close(self) -> None:
        """Release memory and the file. Streams still open end as cancelled."""

    def __enter__(self) -> Self:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return self

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"on {', '.join(self.backends)}, n_ctx {self.n_ctx}"
        return f"<pumice.{type(self).__name__} {str(self._file.path)!r} {state}>"

    def __exit__(self, *_: object) -> None:
        self.close()


class TokenizerOf:
    """The tokenizer of a file, made when first asked for."""

    def __init__(self, file: GGUFFile, registry: Registry) -> None:
        self._file = file
        self._registry = registry

    def __call__(self) -> Tokenizer:
        return self._made

    def or_none(self) -> Tokenizer | None:
        """A model without a known tokenizer still takes and gives token ids."""
        try:
            return self._made
        except TokenizerError:
            return None

    @cached_property
    def _made(self) -> Tokenizer:
        return from_metadata(self._file.metadata, self._registry.tokenizers, self._registry.pre_tokenizers)


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
