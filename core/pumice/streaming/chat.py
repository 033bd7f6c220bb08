"""Answers of a chat, delta by delta, for a thread or for a coroutine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pumice.chat import ChatCompletion, ChatDelta, TokenLogprob, Turn
from pumice.engine import EngineClient, Request, Timings
from pumice.streaming.pieces import Piece
from pumice.streaming.stream import AsyncStream, Stream

if TYPE_CHECKING:
    from pumice.chat.answer import AnswerBuilder


@dataclass(frozen=True)
class PreparedChat:
    """A chat whose prompt is rendered and whose options are checked, ready to be answered any number of times.

    Attributes:
        turn: The prompt, and how its answers are read.
        request: Generates an answer; ``dataclasses.replace`` makes a variant.
    """

    turn: Turn
    request: Request


Progress = Callable[[int, int], None] | None
S = TypeVar("S", Stream, AsyncStream)


class _Answer(Generic[S]):
    """The stream of an answer's pieces, and their conversion to deltas.

    Attributes:
        audio_tokens: Tokens of the prompt that are sounds.
    """

    def __init__(self, turn: Turn | None, stream: S) -> None:
        self._stream: S = stream
        self._ended = False
        self._answer: AnswerBuilder | None = None
        self.audio_tokens = 0
        if turn is not None:
            self._begin(turn)

    def _begin(self, turn: Turn) -> None:
        """Expect the answer of a turn."""
        self._answer = turn.answer()
        self.audio_tokens = turn.prompt.audio_tokens

    @property
    def timings(self) -> Timings:
        """Timings so far; complete when the stream has ended."""
        return self._stream.timings

    @property
    def tokens(self) -> list[int]:
        """Tokens of the answer that were read so far."""
        return self._answer.tokens if self._answer else []

    def end_reasoning(self) -> None:
        """Let the answer follow after the next token of reasoning; needs the option ``reasoning_budget``."""
        self._stream.end_reasoning()

    def close(self) -> None:
        """Cancel the rest of the generation."""
        self._stream.close()

    def _delta(self, piece: Piece) -> ChatDelta:
        """Return the delta of a piece; it may be empty."""
        assert self._answer is not None  # pieces follow the prompt, with which it begins
        tokens = [] if piece.token is None else [piece.token]
        logprobs = [
            TokenLogprob(token, piece.logprobs.logprob, piece.logprobs.top) for token in tokens if piece.logprobs
        ]
        delta = self._answer.take(piece.text, tokens, logprobs)
        if piece.finish_reason is None:
            return delta
        self._ended = True
        timings = self.timings
        return delta.followed_by(self._answer.finish(piece.finish_reason, timings.prompt_tokens, timings.prompt_cached))

    def _completion(self) -> ChatCompletion:
        """Return the whole answer, which has ended."""
        assert self._answer is not None
        return replace(self._answer.completion(), timings=self.timings)


class ChatStream(_Answer[Stream], Iterator[ChatDelta]):
    """An iterator over the deltas of one answer; ``completion`` returns the whole answer.

    The model computes ahead of the reader. Closing the stream, leaving its loop or dropping it cancels the rest.
    """

    @classmethod
    def open(cls, client: EngineClient, chat: PreparedChat, progress: Progress = None) -> ChatStream:
        """Submit a chat. Raises RequestError."""
        return cls(chat.turn, Stream.open(client, chat.request, progress)[0])

    def __next__(self) -> ChatDelta:
        while not self._ended:
            delta = self._delta(next(self._stream))
            if not delta.is_empty:
                return delta
        raise StopIteration

    def completion(self) -> ChatCompletion:
        """Read to the end and return the whole answer."""
        for _ in self:
            pass
        return self._completion()

    def __enter__(self) -> ChatStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncChatStream(_Answer[AsyncStream], AsyncIterator[ChatDelta]):
    """Like ``ChatStream``, for the event loop in which it was created.

    Attributes:
        prompt_tokens: Token ids of the prompt; none before a prompt with images or sounds has been read.
    """

    def __init__(self, turn: Turn | None, stream: AsyncStream) -> None:
        super().__init__(turn, stream)
        self.prompt_tokens: Sequence[int] = turn.prompt.tokens if turn else ()

    @classmethod
    def open(cls, client: EngineClient, chat: PreparedChat, progress: Progress = None) -> AsyncChatStream:
        """Submit a chat. Raises RequestError."""
        return cls(chat.turn, AsyncStream.open(client, chat.request, progress)[0])

    @classmethod
    def later(
        cls, client: EngineClient, prepare: Callable[[], PreparedChat], progress: Progress = None
    ) -> AsyncChatStream:
        """Return the stream of a chat that a thread makes when the first delta is wanted; that raises its errors."""

        def request() -> Request:
            chat = prepare()
            answer._begin(chat.turn)
            answer.prompt_tokens = chat.turn.prompt.tokens
            return chat.request

        answer = cls(None, AsyncStream.later(client, request, progress))
        return answer

    async def __anext__(self) -> ChatDelta:
        while not self._ended:
            delta = self._delta(await anext(self._stream))
            if not delta.is_empty:
                return delta
        raise StopAsyncIteration

    async def ready(self) -> list[ChatDelta]:
        """Wait for the next deltas and return them, merged as far as possible; an empty list after the last."""
        deltas: list[ChatDelta] = []
        while not deltas and not self._ended:
            for piece in await self._stream.ready():
                delta = self._delta(piece)
                if deltas and deltas[-1].may_join(delta):
                    deltas[-1] = deltas[-1].followed_by(delta)
                elif not delta.is_empty:
                    deltas.append(delta)
        return deltas

    async def accepted(self) -> None:
        """Wait until the engine accepts the request. Raises RequestError if it refuses it."""
        await self._stream.accepted()

    async def completion(self) -> ChatCompletion:
        """Read to the end and return the whole answer."""
        while await self.ready():
            pass
        return self._completion()

    async def __aenter__(self) -> AsyncChatStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
