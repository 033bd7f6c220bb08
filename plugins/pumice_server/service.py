"""The interface of the protocols to a loaded model: asynchronous streams, tokens, facts.

The model may be in this process or in another one.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import pumice
from pumice.cli.options import ASSUMED_TEMPLATE
from pumice.options import OUTPUT
from pumice.plugin.unstable import MAX_IMAGES, MEDIA_TYPES, mixed_content
from pumice_server import logs
from pumice_server.errors import bad_request, too_late
from pumice_server.figures import build_info
from pumice_server.media_urls import with_fetched
from pumice_server.metrics import Metrics
from pumice_server.pools import MEDIA, PREPARATION, SCHEMAS
from pumice_server.settings import Settings
from pumice_server.streams import D, Source, is_late
from pumice_server.variant import Variant
from pumice_server.work import aside

if TYPE_CHECKING:
    AnyModel: TypeAlias = pumice.Model | pumice.LinkedModel

T = TypeVar("T")

TextOrTokens = str | list[int]
ChatMessages = Sequence[Mapping[str, Any]]
"""Messages of a chat as clients send them; ``pumice.Model.prepare_chat`` checks them."""
_UNSHIFTED = {"context_shift": False}  # a part of an image or a sound would remain
_FORMS = frozenset((*OUTPUT, "response_format", "tools"))  # options that may need a grammar
Slot = tuple[str, int]  # client and number of a slot; -1: no slot


class SlotText(NamedTuple):
    """The tokens of a slot, and the salt with which they are cached."""

    tokens: Sequence[int] = ()
    salt: str = ""


CompletionProgress = Callable[[int, int, int], None]

WORK = 8  # cost of tokenizing a character relative to parsing a byte of JSON
BEAT_SECONDS = 10.0  # time in which a healthy engine finishes a step
_LOOKS = 8  # waits in the timeout of a health check

logger = logging.getLogger("pumice")


@dataclass
class MediaPrompt:
    """A prompt of texts, images and sounds.

    Attributes:
        text: the prompt with markers for its images and sounds.
        parts: its texts, images and sounds.
        tokens: its tokens, once it has been read; those of images and sounds mean nothing.
        n_media: tokens of these, once it has been read.
    """

    text: str
    parts: Sequence[str | pumice.Image | pumice.Audio | pumice.Video]
    tokens: list[int] = field(default_factory=list)
    n_media: int = 0


class Service:
    """A loaded model and its names. Answers carry the first name."""

    def __init__(
        self,
        model: AnyModel,
        names: Sequence[str],
        settings: Settings,
        metrics: Metrics,
        scales: dict[str, float] | None = None,
    ) -> None:
        """Serve a model.

        Args:
            model: Loaded model.
            names: Names of the model.
            settings: Settings of the server.
            metrics: Counters of the server.
            scales: Scale of each LoRA adapter for requests that do not set it.
        """
        self.model = model
        self.names = names
        self._counted_as = names[0]  # names that clients make are no labels of metrics
        self.created = int(time.time())
        self._media_hosts = settings.media_hosts
        self.voices = settings.voices
        self._always: dict[str, Any] = {"timeout": settings.timeout, "context_shift": settings.context_shift}
        self.max_sequences = settings.max_sequences
        self.compat, self.verbose = settings.compat, settings.compat and settings.verbose
        self.fingerprint = build_info(settings.compat)
        self.assumed_template = None if model.has_chat_template else ASSUMED_TEMPLATE
        self.scales = {} if scales is None else scales
        self.adapter: str | None = None  # the only adapter of the model by the name in the request
        assumed = {"chat_template": self.assumed_template} if self.assumed_template else {}
        self._chat = {**assumed, **settings.chat}
        self._output = settings.output
        self._variant = Variant()
        self._defaults: Mapping[str, Any] = {}
        self._max_tokens = settings.max_tokens
        self.stop, self.pooling = settings.stop, settings.pooling
        self.slots: dict[Slot, SlotText] = {}
        self._in_slots = WeakKeyDictionary[Source[Any, Any], tuple[Slot, SlotText]]()  # with their prompts
        self._metrics = metrics
        self._asked: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def timeout(self) -> float:
        """Seconds for a request."""
        seconds: float = self._always["timeout"]
        return seconds

    @property
    def sees(self) -> bool:
        """True if the model takes images."""
        return "image" in self.model.facts.media

    @property
    def watches(self) -> bool:
        """True if the model takes video."""
        return "video" in self.model.facts.media

    @property
    def hears(self) -> bool:
        """True if the model takes sound."""
        return "audio" in self.model.facts.media

    def called(self, name: str) -> Service:
        """Return this service, or for ``ADAPTER`` and ``MODEL:ADAPTER`` the same model with that adapter alone."""
        adapter = name if name in self.scales else name.partition(":")[2]
        if name in self.names or adapter not in self.scales:
            return self
        alone = copy.copy(self)
        alone.names, alone.adapter = [name], adapter
        alone.scales = {other: float(other == adapter) for other in self.scales}
        return alone

    def within(self, seconds: float) -> Service:
        """Return this service with another timeout of requests."""
        own = copy.copy(self)
        own._always = {**self._always, "timeout": seconds}
        return own

    def named(self, name: str) -> Service:
        """Return this service with another name in answers."""
        own = copy.copy(self)
        own.names = [name]
        return own

    def with_variant(self, variant: Variant, defaults: Mapping[str, Any]) -> Service:
        """Return the service of a variant: the same model with ``defaults`` among the options of generation."""
        own = copy.copy(self)
        own._variant = variant
        own.stop = defaults.get("stop", self.stop)
        own._defaults = {key: value for key, value in defaults.items() if value is not None and key != "stop"}
        return own

    async def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the tokens of a text, computed off the event loop."""
        return await aside(self.model.tokenize, text, add_special, parse_special, size=WORK * len(text))

    def tokens_of(self, prompt: TextOrTokens, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the tokens of a prompt; slow. Raises RequestError and HTTPException if it does not fit the context."""
        if isinstance(prompt, str):
            self.model.check_fits([prompt])
            return self.model.tokenize(prompt, add_special, parse_special)
        self._check_length(prompt)
        wrong = next((token for token in prompt if not 0 <= token < self.model.n_vocab), None)
        if wrong is not None:
            raise bad_request(f"token id {wrong} is outside the vocabulary of {self.model.n_vocab}")
        return prompt

    async def read_prompts(self, prompts: Sequence[TextOrTokens]) -> list[list[int]]:
        """Return the tokens of prompts, computed off the event loop. Raises as ``tokens_of``."""
        return await aside(lambda: list(map(self.tokens_of, prompts)), size=WORK * sum(map(len, prompts)))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, computed off the event loop."""
        return await aside(self.model.detokenize, tokens, size=WORK * len(tokens))

    def token_bytes(self, token: int) -> bytes:
        return self.model.tokenizer.token_bytes(token, special=True)

    def spelt(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special tokens included; slow for many tokens.

        The text is empty if the file has no tokenizer.
        """
        try:
            tokenizer = self.model.tokenizer
        except pumice.TokenizerError:
            return ""
        return b"".join(tokenizer.token_bytes(token, special=True) for token in tokens).decode("utf-8", "replace")

    def stopping_word(self, done: pumice.Completion | pumice.ChatCompletion, stops: Iterable[str]) -> str:
        """Return the stop string that ended a completion, or an empty text. Its tokens hold it, its text does not."""
        if done.finish_reason != "stop":
            return ""
        spelt = self.spelt(done.tokens)
        return next((stop for stop in stops if stop in spelt), "")

    async def complete(
        self,
        prompts: Sequence[TextOrTokens | MediaPrompt],
        n: int,
        options: Mapping[str, Any],
        progress: CompletionProgress | None = None,
    ) -> list[pumice.AsyncStream]:
        """Start ``n`` completions of each prompt, in the order of the prompts. Raises RequestError.

        ``progress`` is called with the number of a completion, the tokens of its prompt read so far, and their total.
        The option ``slot`` (``Slot``) names the slot that keeps the tokens when the completion has ended.
        """
        self.check_count(len(prompts) * n)
        options, slot = _without_slot(self._shaped(options))
        if OUTPUT.keys() & options.keys():
            options = await SCHEMAS(self.model.prepare_options, options)
        ids = iter(await self.read_prompts([prompt for prompt in prompts if not isinstance(prompt, MediaPrompt)]))
        streams: list[pumice.AsyncStream] = []
        with _closing_on_error(streams):
            for prompt in prompts:
                tokens = prompt.tokens if isinstance(prompt, MediaPrompt) else next(ids)
                self._check_length(tokens)
                for sequence_options in self._seeded(self._within(tokens, self._completed(options)), n):
                    tell = partial(progress, len(streams)) if progress else None
                    if isinstance(prompt, MediaPrompt):
                        streams.append(await self._stream(prompt, sequence_options, tell))
                        continue
                    streams.append(self.model.astream(tokens, progress=tell, **self._always, **sequence_options))
                    self._put_in_slot(streams[-1], slot, SlotText(tokens, options.get("cache_salt", "")))
                    await asyncio.sleep(0)  # each copies its prompt: let other requests run
            for stream in streams:
                await stream.accepted()
        return streams

    async def _stream(
        self, prompt: MediaPrompt, options: Mapping[str, Any], progress: Callable[[int, int], None] | None
    ) -> pumice.AsyncStream:
        """Start a completion of texts and media, which are encoded off the event loop. Raises as ``in_time``."""
        options = {**self._always, **options, **_UNSHIFTED}
        request = await self.in_time(MEDIA(lambda: self.model.request(prompt.parts, **options)))
        prompt.tokens = list(request.prompt)
        prompt.n_media = sum(span.n_rows for span in request.media)
        return pumice.AsyncStream.open(self.model.client, request, progress)[0]

    async def score(self, prompt: list[int], n_top: int, options: Mapping[str, Any]) -> Sequence[pumice.Logprobs]:
        """Return log-probabilities of a prompt's tokens after the first. Raises RequestError, and as ``in_time``."""
        self._check_length(prompt)
        scales, salt = options.get("adapters", self.adapters), options["cache_salt"]
        return await self.in_time(self.model.aprompt_logprobs(prompt, n_top, adapters=scales, cache_salt=salt))

    async def save_prompt(self, prompt: list[int], salt: str) -> int:
        """Write the cache of a prompt that was read to disk; return the number of its tokens there. As ``in_time``."""
        return await self.in_time(self.model.asave_prompt(prompt, adapters=self.adapters, cache_salt=salt))

    async def in_time(self, work: Awaitable[T]) -> T:
        """Return the result of work without tokens. Raises HTTPException after the request timeout."""
        try:
            async with asyncio.timeout(self._always["timeout"]):
                return await work
        except TimeoutError:
            raise too_late() from None

    async def chat(
        self, messages: ChatMessages, n: int, options: Mapping[str, Any], progress: CompletionProgress | None = None
    ) -> list[pumice.AsyncChatStream]:
        """Start ``n`` answers to a chat; the rest is as for ``complete``. Raises RequestError."""
        self.check_count(n)
        options, slot = _without_slot(self._shaped(options))
        options = self.with_defaults(self._completed(options))
        turn = await self._turn(messages, options)
        self._check_length(turn.prompt.tokens)
        always = {**self._always, **_UNSHIFTED} if turn.prompt.media else self._always
        streams: list[pumice.AsyncChatStream] = []
        with _closing_on_error(streams):
            for answer_options in self._seeded(options, n):
                tell = partial(progress, len(streams)) if progress else None
                streams.append(self.model.achat_stream(turn, progress=tell, **always, **answer_options))
                if not turn.prompt.media:
                    self._put_in_slot(streams[-1], slot, SlotText(turn.prompt.tokens, options.get("cache_salt", "")))
                await asyncio.sleep(0)  # each builds a parser: let other requests run
            for stream in streams:
                await stream.accepted()
        return streams

    async def _turn(self, messages: ChatMessages, options: Mapping[str, Any]) -> pumice.Turn:
        """Return the prepared turn of a chat. Raises RequestError, and with media as ``in_time``."""
        messages = self._variant.beginning(messages)
        pool = SCHEMAS if _FORMS.intersection(name for name, value in options.items() if value) else PREPARATION
        turn = await pool(self._prepare_text, messages, options)
        if turn is None:
            messages = await self._with_fetched(messages)
            turn = await self.in_time(MEDIA(self._prepare_chat, messages, options))
        return turn

    async def _with_fetched(self, messages: ChatMessages) -> ChatMessages:
        """Return messages with the images that addresses name. Raises as ``with_fetched`` and ``in_time``."""
        return await self.in_time(with_fetched(messages, self._media_hosts if self.sees else ()))

    async def prepare_texts(self, messages: ChatMessages) -> list[pumice.PreparedText]:
        """Return the tokens and media of the contents of messages, without a template. Raises as ``in_time``."""
        return await self.in_time(MEDIA(self._prepare_texts, await self._with_fetched(messages)))

    def _prepare_texts(self, messages: ChatMessages) -> list[pumice.PreparedText]:
        texts = [mixed_content(message["content"], f"input[{i}]") for i, message in enumerate(messages)]
        n_media = sum(not isinstance(part, str) for text in texts for part in text)
        if n_media > MAX_IMAGES:
            raise bad_request(f"input: {n_media} images and sounds; at most {MAX_IMAGES} are allowed")
        return self.model.prepare_embed(texts)

    async def count_tokens(self, messages: ChatMessages, options: Mapping[str, Any]) -> int:
        """Return the number of tokens of a chat's prompt, prepared as for the chat itself.

        Images and sounds are encoded, and not again for the chat itself if it has the same ``cache_salt``.
        """
        options, _ = _without_slot(options)
        return len((await self._turn(messages, self.with_defaults(options))).prompt.tokens)

    def _prepare_text(self, messages: ChatMessages, options: Mapping[str, Any]) -> pumice.Turn | None:
        """Return the prepared turn of a chat; None if it has images or sounds."""
        return None if has_media(messages) else self._prepare_chat(messages, options)

    def _prepare_chat(self, messages: ChatMessages, options: Mapping[str, Any]) -> pumice.Turn:
        self.model.check_fits(texts_of(messages))
        return self.model.prepare_chat(messages, **options)

    async def gather(self, streams: Sequence[Source[Any, D]]) -> list[D]:
        """Return the completion of each stream. A cancellation closes the streams.

        Raises HTTPException if all of them timed out before their first token.
        """
        try:
            done = [await stream.completion() for stream in streams]
        finally:
            self.end(streams)
        if all(map(is_late, done)):
            raise too_late()
        return done

    def end(self, streams: Iterable[Source[Any, Any]]) -> None:
        """Close streams, and count their tokens."""
        for stream in streams:
            stream.close()
            if found := self._in_slots.pop(stream, None):
                slot, prompt = found  # the last token is not computed
                self.slots[slot] = prompt._replace(tokens=[*prompt.tokens, *stream.tokens[:-1]])
            self._metrics.count(self._counted_as, stream.timings)
            logs.note(self.name, stream.timings)

    def _put_in_slot(self, stream: Source[Any, Any], slot: Slot | None, prompt: SlotText) -> None:
        """Let a slot keep the tokens of a stream, if there is such a slot; a single one keeps those of every stream."""
        if slot is None:
            return
        client, number = slot
        number = 0 if number < 0 and self.model.config.n_parallel == 1 else number
        if 0 <= number < self.model.config.n_parallel:
            self._in_slots[stream] = (client, number), prompt

    def note_encoded(self, n_tokens: int, began: float) -> None:
        """Count the tokens of texts that were embedded or ranked from ``began`` on, by the monotonic clock."""
        self._metrics.count_encoded(self._counted_as, n_tokens, time.monotonic() - began)
        logs.about(model=self.name, prompt_tokens=n_tokens)

    async def snapshot(self, timeout: float | None = BEAT_SECONDS) -> pumice.Snapshot:
        """Return the state of the engine. Raises TimeoutError if it finishes no step within the timeout."""
        return await asyncio.wait_for(asyncio.wrap_future(self.model.client.ask()), timeout)

    def ask(self, timeout: float) -> None:
        """Start a health check, unless one runs. An engine that does not answer in time is killed."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._expect(timeout))

    async def _expect(self, timeout: float) -> None:
        asking = asyncio.ensure_future(self.snapshot(None))
        try:
            for _ in range(_LOOKS):  # a jump of the clock, as after suspend, ends one wait only
                await asyncio.wait([asking], timeout=timeout / _LOOKS)
            if asking.done():
                asking.exception()  # the death of an engine is noticed elsewhere
                return
        finally:
            asking.cancel()
        logger.error("%s: its engine has not finished a batch for %.0f seconds", self.name, timeout)
        if isinstance(self.model, pumice.ProcessModel):
            await asyncio.to_thread(self.model.process.kill)

    async def apply_template(self, messages: ChatMessages, options: Mapping[str, Any]) -> str:
        """Return the prompt of a chat as text. Raises RequestError."""
        messages = await self._with_fetched(messages)
        return await PREPARATION(self._apply_template, messages, self.with_defaults(options))

    def _apply_template(self, messages: ChatMessages, options: Mapping[str, Any]) -> str:
        messages = self._variant.beginning(messages)
        self.model.check_fits(texts_of(messages))
        return self.model.apply_template(messages, **options)

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a chat, completed with the server's defaults."""
        present = {name: value for name, value in options.items() if value is not None}
        # llama-server gives templates this variable.
        today = {"date_string": time.strftime("%d %b %Y")} if self.compat else {}
        variables = {**today, **self._chat.get("template_variables", {}), **present.get("template_variables", {})}
        return {**self._chat, **present, "template_variables": variables}

    @property
    def adapters(self) -> dict[str, float]:
        """Scales of adapters, and of control vectors, which requests cannot change."""
        return {**self.model.config.adapter_scales, **self.scales}

    def _shaped(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options with the server's grammar or schema, unless they say what form the text has, or name tools."""
        says = any(options.get(name) not in (None, False) for name in (*OUTPUT, "response_format"))
        return options if says or options.get("tools") else {**self._output, **options}

    def _completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with the server's adapter scales as defaults, and with its limit of tokens."""
        present = {name: value for name, value in options.items() if value is not None or name not in self._defaults}
        completed = {"adapters": self.adapters, "request_id": logs.request_id(), **self._defaults, **present}
        return {**completed, "max_tokens": self.most_tokens(completed.get("max_tokens"))}

    def _within(self, prompt: Sequence[int], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options for ``compat``, whose context is full with its last token, not with the one after it."""
        room, asked = max(1, self.model.n_ctx - len(prompt)), options.get("max_tokens")
        if not self.compat or self._always["context_shift"] or (asked is not None and asked <= room):
            return options
        return {**options, "max_tokens": room}

    def most_tokens(self, asked: int | None) -> int | None:
        """Return the maximum tokens of an answer; None for no limit.

        The server's number is an upper limit; with ``compat`` it is a default.
        """
        most = self._max_tokens
        allowed = isinstance(asked, int) and asked >= 0 and (self.compat or asked <= most)
        return asked if most < 0 or allowed else most

    def _seeded(self, options: Mapping[str, Any], n: int) -> list[Mapping[str, Any]]:
        """Return the options of ``n`` completions; a given or configured seed increases by one for each."""
        seed = options.get("seed", self.model.config.sampling.get("seed", -1))
        if n == 1 or not isinstance(seed, int) or seed < 0:
            return [options] * n
        return [{**options, "seed": seed + i} for i in range(n)]

    def _check_length(self, tokens: Sequence[int]) -> None:
        """Raise PromptTooLongError for a prompt that exceeds the context, before any work on its tokens."""
        if len(tokens) > self.model.n_ctx:
            raise pumice.PromptTooLongError(len(tokens), self.model.n_ctx)

    def check_count(self, n: int) -> None:
        """Raise HTTPException if a request asks for too many completions."""
        if n > self.max_sequences:
            raise bad_request(f"the request asks for {n} completions at once, the maximum is {self.max_sequences}")


def _without_slot(options: Mapping[str, Any]) -> tuple[dict[str, Any], Slot | None]:
    """Return options without the slot, and the slot."""
    others = dict(options)
    return others, others.pop("slot", None)


def has_media(messages: ChatMessages) -> bool:
    """Return True if a message has an image or a sound. Errors in messages are found later."""
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(isinstance(part, Mapping) and part.get("type") in MEDIA_TYPES for part in parts)


def texts_of(messages: ChatMessages) -> list[str]:
    """Return the texts of messages. Errors in messages are found later."""
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


@contextmanager
def _closing_on_error(streams: Iterable[Source[Any, Any]]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for stream in streams:
            stream.close()
        raise
