"""The interface of the protocols to a loaded model, for one request: asynchronous streams, tokens, facts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import pumice
from pumice.options import OUTPUT
from pumice.plugin.unstable import MAX_IMAGES, MEDIA_TYPES, mixed_content
from pumice_server import logs
from pumice_server.errors import bad_request, too_late
from pumice_server.models.media_urls import parts_of, with_fetched
from pumice_server.models.model_service import Slot, SlotText
from pumice_server.models.model_texts import TextOrTokens
from pumice_server.models.request_view import RequestView
from pumice_server.models.streams import D, Source, is_late
from pumice_server.pools import MEDIA, PREPARATION, SCHEMAS

T = TypeVar("T")

ChatMessages = Sequence[Mapping[str, Any]]
"""Messages of a chat as clients send them; ``pumice.Model.template`` checks them."""
_FORMS = frozenset((*OUTPUT, "response_format", "tools"))  # options that may need a grammar
CompletionProgress = Callable[[int, int, int], None]


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


class Service(RequestView):
    """Answers a request by a loaded model."""

    def within(self, seconds: float) -> Service:
        """Return this service with another timeout of requests."""
        return Service(self.shared, replace(self.view, timeout=seconds))

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
        options, slot = _without_slot(self.shaped(options))
        options = {**self.always, **self.completed(options)}
        make = partial(self.model.request, [], **options)
        shared = await SCHEMAS(make) if OUTPUT.keys() & options.keys() else make()
        ids = iter(await self.read_prompts([prompt for prompt in prompts if not isinstance(prompt, MediaPrompt)]))
        streams: list[pumice.AsyncStream] = []
        with _closing_on_error(streams):
            for prompt in prompts:
                request = (
                    await self._read(prompt, options)
                    if isinstance(prompt, MediaPrompt)
                    else replace(shared, prompt=next(ids))
                )
                self.check_length(request.prompt)
                for single in self.seeded(self.within_context(request), n):
                    tell = partial(progress, len(streams)) if progress else None
                    streams.append(self.model.astream(single, progress=tell))
                    if not isinstance(prompt, MediaPrompt):
                        self.shared.put_in_slot(streams[-1], slot, SlotText(single.prompt, single.cache_salt))
                    await asyncio.sleep(0)  # each copies its prompt: let other requests run
            for stream in streams:
                await stream.accepted()
        return streams

    async def _read(self, prompt: MediaPrompt, options: Mapping[str, Any]) -> pumice.Request:
        """Return the request of texts and media, which are encoded off the event loop. Raises as ``in_time``."""
        settings = {**options, "context_shift": False}
        request = await self.in_time(MEDIA(lambda: self.model.request(prompt.parts, **settings)))
        prompt.tokens = list(request.prompt)
        prompt.n_media = sum(span.n_rows for span in request.media)
        return request

    async def score(self, prompt: list[int], n_top: int, options: Mapping[str, Any]) -> Sequence[pumice.Logprobs]:
        """Return log-probabilities of a prompt's tokens after the first. Raises RequestError."""
        self.check_length(prompt)
        scales, salt = options.get("adapters", self.adapters), options["cache_salt"]
        terms = self.terms(options.get("priority", 0))
        return await self.model.ascore(prompt, n_top, adapters=scales, cache_salt=salt, **terms)

    async def save_prompt(self, prompt: list[int], salt: str) -> int:
        """Write the cache of a prompt that was read to disk; return the number of those there. Raises RequestError."""
        save = self.model.cache.asave
        return await save(prompt, adapters=self.adapters, cache_salt=salt, timeout=self.timeout)

    async def in_time(self, work: Awaitable[T]) -> T:
        """Return the result of work outside of the engine. Raises HTTPException after the request timeout."""
        try:
            async with asyncio.timeout(self.timeout):
                return await work
        except TimeoutError:
            raise too_late() from None

    async def chat(
        self, messages: ChatMessages, n: int, options: Mapping[str, Any], progress: CompletionProgress | None = None
    ) -> list[pumice.AsyncChatStream]:
        """Start ``n`` answers to a chat; the rest is as for ``complete``. Raises RequestError."""
        self.check_count(n)
        options, slot = _without_slot(self.shaped(options))
        chat = await self._prepared(messages, {**self.always, **self.with_defaults(self.completed(options))})
        request, has_media = chat.request, bool(chat.request.media)
        self.check_length(request.prompt)
        if has_media:
            request = replace(request, context_shift=False)  # a part of an image or a sound would remain
        streams: list[pumice.AsyncChatStream] = []
        with _closing_on_error(streams):
            for single in self.seeded(request, n):
                tell = partial(progress, len(streams)) if progress else None
                streams.append(self.model.achat_stream(replace(chat, request=single), progress=tell))
                if not has_media:
                    self.shared.put_in_slot(streams[-1], slot, SlotText(single.prompt, single.cache_salt))
                await asyncio.sleep(0)  # each builds a parser: let other requests run
            for stream in streams:
                await stream.accepted()
        return streams

    async def _prepared(self, messages: ChatMessages, options: Mapping[str, Any]) -> pumice.PreparedChat:
        """Return a prepared chat. Raises RequestError, and with media as ``in_time``."""
        messages = self.variant.beginning(messages)
        pool = SCHEMAS if _FORMS.intersection(name for name, value in options.items() if value) else PREPARATION
        chat = await pool(self._prepare_text, messages, options)
        if chat is None:
            messages = await self._with_fetched(messages)
            chat = await self.in_time(MEDIA(self._prepare_chat, messages, options))
        return chat

    async def _with_fetched(self, messages: ChatMessages) -> ChatMessages:
        """Return messages with the images that addresses name. Raises as ``with_fetched`` and ``in_time``."""
        return await self.in_time(with_fetched(messages, self.media_hosts if "image" in self.model.facts.media else ()))

    async def prepare_texts(self, messages: ChatMessages) -> list[pumice.PreparedText]:
        """Return the tokens and media of the contents of messages, without a template. Raises as ``in_time``."""
        return await self.in_time(MEDIA(self._prepare_texts, await self._with_fetched(messages)))

    def _prepare_texts(self, messages: ChatMessages) -> list[pumice.PreparedText]:
        texts = [mixed_content(message["content"], f"input[{i}]") for i, message in enumerate(messages)]
        n_media = sum(not isinstance(part, str) for text in texts for part in text)
        if n_media > MAX_IMAGES:
            raise bad_request(f"input: {n_media} images and sounds; at most {MAX_IMAGES} are allowed")
        return self.model.media.prepare(texts)

    async def count_tokens(self, messages: ChatMessages, options: Mapping[str, Any]) -> int:
        """Return the number of tokens of a chat's prompt, prepared as for the chat itself.

        Images and sounds are encoded, and not again for the chat itself if it has the same ``cache_salt``.
        """
        options, _ = _without_slot(options)
        return len((await self._prepared(messages, self.with_defaults(options))).request.prompt)

    def _prepare_text(self, messages: ChatMessages, options: Mapping[str, Any]) -> pumice.PreparedChat | None:
        """Return a prepared chat; None if it has images or sounds."""
        return None if has_media(messages) else self._prepare_chat(messages, options)

    def _prepare_chat(self, messages: ChatMessages, options: Mapping[str, Any]) -> pumice.PreparedChat:
        self.model.tokenizer.check_fits(texts_of(messages), self.model.n_ctx)
        return self.model.template.prepare(messages, **options)

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
            self.shared.end(stream)
            logs.note(stream.timings)

    def note_encoded(self, n_tokens: int, began: float) -> None:
        """Count the tokens of texts that were embedded or ranked from ``began`` on, by the monotonic clock."""
        self.shared.count_encoded(n_tokens, time.monotonic() - began)
        logs.about(prompt_tokens=n_tokens)

    async def apply_template(self, messages: ChatMessages, options: Mapping[str, Any]) -> str:
        """Return the prompt of a chat as text. Raises RequestError."""
        messages = await self._with_fetched(messages)
        return await PREPARATION(self._apply_template, messages, self.with_defaults(options))

    def _apply_template(self, messages: ChatMessages, options: Mapping[str, Any]) -> str:
        messages = self.variant.beginning(messages)
        self.model.tokenizer.check_fits(texts_of(messages), self.model.n_ctx)
        return self.model.template.apply(messages, **options)

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
    return any(isinstance(part, Mapping) and part.get("type") in MEDIA_TYPES for part in parts_of(messages))


def texts_of(messages: ChatMessages) -> list[str]:
    """Return the texts of messages. Errors in messages are found later."""
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts_of(messages)]
    return [text for text in texts if isinstance(text, str)]


@contextmanager
def _closing_on_error(streams: Iterable[Source[Any, Any]]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for stream in streams:
            stream.close()
        raise
