"""What the protocols ask of a model, and all they know of it: asynchronous streams, tokens, facts.

The model may be in this process, as here, or in another one: nothing else of it is touched.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import pumice
from pumice.cli.options import ASSUMED_TEMPLATE
from pumice_server import logs
from pumice_server.errors import bad_request, too_late
from pumice_server.figures import build_info
from pumice_server.metrics import Metrics
from pumice_server.settings import Settings
from pumice_server.streams import D, Source, is_late
from pumice_server.work import aside, waiting

FORMS = ("grammar", "json_schema", "regex", "choices", "json_whitespace")
"""What the text has to look like, by the names of ``Model.generate`` and llama-server."""

T = TypeVar("T")

Prompt = str | list[int]
Slot = tuple[str, int]  # of a client; -1 for none
Progress = Callable[[int, int, int], None]
AnyModel = pumice.Model | pumice.LinkedModel

WORK = 8  # times the work of reading JSON that tokenizing is, as much of it as there are characters
_LOOKS = 8  # for the answer of an engine that is asked for a sign of life

logger = logging.getLogger("pumice")


class Service:
    """One model that is loaded, and the names it is served under; the first is the one that answers carry."""

    def __init__(
        self,
        model: AnyModel,
        names: Sequence[str],
        settings: Settings,
        metrics: Metrics,
        scales: dict[str, float] | None = None,
    ) -> None:
        """``scales``: how strong each of the model's LoRA adapters is where a request does not say."""
        self.model = model
        self.names = names
        self.created = int(time.time())
        self._always: dict[str, Any] = {"timeout": settings.timeout, "context_shift": settings.context_shift}
        self.max_sequences = settings.max_sequences
        self.compat, self.verbose = settings.compat, settings.compat and settings.verbose
        self.fingerprint = build_info(settings.compat)
        self.assumed_template = None if model.has_chat_template else ASSUMED_TEMPLATE
        self.scales = {} if scales is None else scales
        assumed = {"chat_template": self.assumed_template} if self.assumed_template else {}
        self._chat = {**assumed, **settings.chat}
        self._max_tokens = settings.max_tokens
        self.stop, self.pooling = settings.stop, settings.pooling
        self.heard = time.monotonic()  # when the engine last answered
        self.slots: dict[Slot, list[int]] = {}  # tokens that are computed
        self._metrics = metrics
        self._asked: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.names[0]

    def called(self, name: str) -> Service:
        """This, or for the name of an adapter, or ``MODEL:ADAPTER``, the same model with that adapter alone."""
        adapter = name if name in self.scales else name.partition(":")[2]
        if name in self.names or adapter not in self.scales:
            return self
        alone = copy.copy(self)
        alone.names, alone.scales = [name], {other: float(other == adapter) for other in self.scales}
        return alone

    async def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Beside the event loop, since long texts take a while."""
        return await aside(self.model.tokenize, text, add_special, parse_special, size=WORK * len(text))

    def tokens_of(self, prompt: Prompt, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The tokens of a prompt, which the context can hold; for a thread. Raises RequestError and HTTPException."""
        if isinstance(prompt, str):
            self.model.check_fits([prompt])
            return self.model.tokenize(prompt, add_special, parse_special)
        self._check_length(prompt)
        wrong = next((token for token in prompt if not 0 <= token < self.model.n_vocab), None)
        if wrong is not None:
            raise bad_request(f"token id {wrong} is outside the vocabulary of {self.model.n_vocab}")
        return prompt

    async def read_prompts(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """The tokens of prompts, found beside the event loop. Raises as ``tokens_of``."""
        return await aside(lambda: list(map(self.tokens_of, prompts)), size=WORK * sum(map(len, prompts)))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, found beside the event loop."""
        return await aside(self.model.detokenize, tokens, size=WORK * len(tokens))

    def token_bytes(self, token: int) -> bytes:
        return self.model.tokenizer.token_bytes(token, special=True)

    def spelt(self, tokens: Sequence[int]) -> str:
        """Tokens as text, special ones too. It takes as long as there are tokens."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")

    def stopping_word(self, done: pumice.Completion | pumice.ChatCompletion, stops: Iterable[str]) -> str:
        """The stop string that ended it, if one did: tokens hold it, the text does not."""
        if done.finish_reason != "stop":
            return ""
        spelt = self.spelt(done.tokens)
        return next((stop for stop in stops if stop in spelt), "")

    async def complete(
        self, prompts: Sequence[Prompt], n: int, options: Mapping[str, Any], progress: Progress | None = None
    ) -> list[pumice.AsyncStream]:
        """Begin ``n`` completions of each prompt, those of the first prompt first. Raises RequestError.

        ``progress`` is called with the number of a completion, and how much of its prompt is read, and of how much.
        """
        self.check_count(len(prompts) * n)
        if any(name in options for name in FORMS):
            options = await waiting(self.model.prepare_options, options)
        ids = await self.read_prompts(prompts)
        streams: list[pumice.AsyncStream] = []
        with _closing_on_error(streams):
            for prompt in ids:
                self._check_length(prompt)
                for each in self._seeded(self._within(prompt, self._completed(options)), n):
                    tell = partial(progress, len(streams)) if progress else None
                    streams.append(self.model.astream(prompt, progress=tell, **self._always, **each))
                    await asyncio.sleep(0)  # each is a copy of its prompt: others have their turn
            for stream in streams:
                await stream.accepted()
        return streams

    async def score(self, prompt: list[int], n_top: int, options: Mapping[str, Any]) -> Sequence[Any]:
        """Log-probabilities of a prompt's tokens after the first. Raises RequestError, and as ``in_time``."""
        self._check_length(prompt)
        scales, salt = options.get("adapters", self.adapters), options["cache_salt"]
        return await self.in_time(self.model.aprompt_logprobs(prompt, n_top, adapters=scales, cache_salt=salt))

    async def in_time(self, work: Awaitable[T]) -> T:
        """The result of work that gives no tokens. Raises HTTPException where the time of a request is over before."""
        try:
            async with asyncio.timeout(self._always["timeout"]):
                return await work
        except TimeoutError:
            raise too_late() from None

    async def chat(
        self, messages: Any, n: int, options: Mapping[str, Any], progress: Progress | None = None
    ) -> list[pumice.AsyncChatStream]:
        """Begin ``n`` answers; ``progress`` as in ``complete``. Raises RequestError."""
        self.check_count(n)
        options = self.with_defaults(self._completed(options))
        turn = await waiting(self._prepare_chat, messages, options)
        self._check_length(turn.prompt.tokens)
        streams: list[pumice.AsyncChatStream] = []
        with _closing_on_error(streams):
            for each in self._seeded(options, n):
                tell = partial(progress, len(streams)) if progress else None
                streams.append(self.model.achat_stream(turn, progress=tell, **self._always, **each))
                await asyncio.sleep(0)  # each has a parser of its own: others have their turn
            for stream in streams:
                await stream.accepted()
        return streams

    def _prepare_chat(self, messages: Any, options: Mapping[str, Any]) -> Any:
        self.model.check_fits(texts_of(messages))
        return self.model.prepare_chat(messages, **options)

    async def gather(self, streams: Sequence[Source[Any, D]]) -> list[D]:
        """What each of them gives as a whole. If this is cancelled, they are too.

        Raises HTTPException where the time of all was over before their first token.
        """
        try:
            done = [await stream.completion() for stream in streams]
        finally:
            self.end(streams)
        if all(map(is_late, done)):
            raise too_late()
        return done

    def end(self, streams: Iterable[Source[Any, Any]]) -> None:
        """Cancel what is not generated yet, and count what was."""
        for stream in streams:
            stream.close()
            self._metrics.count(self.name, stream.timings)
            logs.note(self.name, stream.timings)

    async def snapshot(self, timeout: float | None = 10.0) -> Any:
        """What the engine has in hand. Raises TimeoutError if no step ended for so many seconds."""
        snapshot = await asyncio.wait_for(asyncio.wrap_future(self.model.client.ask()), timeout)
        self.heard = time.monotonic()
        return snapshot

    def ask(self, timeout: float) -> None:
        """Ask for a sign of life, unless that is done already. An engine that gives none in time is killed."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._expect(timeout))

    async def _expect(self, timeout: float) -> None:
        asking = asyncio.ensure_future(self.snapshot(None))
        try:
            for _ in range(_LOOKS):  # a clock that jumps, as after the sleep of a machine, is one of them
                await asyncio.wait([asking], timeout=timeout / _LOOKS)
            if asking.done():
                asking.exception()  # it is dead already, which is noticed elsewhere
                return
        finally:
            asking.cancel()
        logger.error("%s: its engine has not ended a step for %.0f seconds", self.name, timeout)
        if isinstance(self.model, pumice.ProcessModel):
            await asyncio.to_thread(self.model.process.kill)

    async def apply_template(self, messages: Any, options: Mapping[str, Any]) -> str:
        """The prompt of a chat, as text. Raises RequestError."""
        return await waiting(self._apply_template, messages, self.with_defaults(options))

    def _apply_template(self, messages: Any, options: Mapping[str, Any]) -> str:
        self.model.check_fits(texts_of(messages))
        return self.model.apply_template(messages, **options)

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a chat, with the server's where a request does not say."""
        given = {name: value for name, value in options.items() if value is not None}
        # As llama-server gives it to templates.
        today = {"date_string": time.strftime("%d %b %Y")} if self.compat else {}
        variables = {**today, **self._chat.get("template_variables", {}), **given.get("template_variables", {})}
        return {**self._chat, **given, "template_variables": variables}

    @property
    def adapters(self) -> dict[str, float]:
        """How strong all are, control vectors too, which no request changes."""
        return {**self.model.config.adapter_scales, **self.scales}

    def _completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Adapters are as strong as the server says where a request does not; no answer is longer than it allows."""
        completed = {"adapters": self.adapters, "request_id": logs.request_id(), **options}
        return {**completed, "max_tokens": self.most_tokens(options.get("max_tokens"))}

    def _within(self, prompt: Sequence[int], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """With ``compat`` a context is full with its last token; otherwise one more is told, which nothing reads."""
        room, asked = max(1, self.model.n_ctx - len(prompt)), options.get("max_tokens")
        if not self.compat or self._always["context_shift"] or (asked is not None and asked <= room):
            return options
        return {**options, "max_tokens": room}

    def most_tokens(self, asked: int | None) -> int | None:
        """How many tokens an answer may have, where so many are asked for; None: any number.

        The server's number is the most that a request gets; with ``compat`` it is that of requests that ask for none.
        """
        most = self._max_tokens
        allowed = isinstance(asked, int) and asked >= 0 and (self.compat or asked <= most)
        return asked if most < 0 or allowed else most

    def _seeded(self, options: Mapping[str, Any], n: int) -> list[Mapping[str, Any]]:
        """Options of ``n`` completions: each has a seed higher by one, where a seed is given or configured."""
        seed = options.get("seed", self.model.config.sampling.get("seed", -1))
        if n == 1 or not isinstance(seed, int) or seed < 0:
            return [options] * n
        return [{**options, "seed": seed + i} for i in range(n)]

    def _check_length(self, tokens: Sequence[int]) -> None:
        """Before anything is done with each token."""
        if len(tokens) > self.model.n_ctx:
            raise pumice.PromptTooLongError(len(tokens), self.model.n_ctx)

    def check_count(self, n: int) -> None:
        """Raise HTTPException where a request asks for more completions than one may."""
        if n > self.max_sequences:
            raise bad_request(f"this asks for {n} completions at once, at most {self.max_sequences} are served")


def texts_of(messages: Any) -> list[str]:
    """The contents of messages, as far as they are text; what is wrong with others is found later."""
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


@contextmanager
def _closing_on_error(streams: Iterable[Source[Any, Any]]) -> Any:
    try:
        yield
    except BaseException:
        for stream in streams:
            stream.close()
        raise
