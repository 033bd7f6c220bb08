"""Answers of a chat as they come, to a thread or to a coroutine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace

from pumice.chat import ChatCompletion, ChatDelta, TokenLogprob, Turn
from pumice.engine import Timings
from pumice.pieces import Piece
from pumice.stream import AsyncStream, Stream

#: Begins to generate after tokens, at most so many.
Start = Callable[[Sequence[int], int | None], Stream]
AsyncStart = Callable[[Sequence[int], int | None], AsyncStream]


class _Deltas:
    """Pieces become deltas. Where the budget of the reasoning is spent, the answer goes on in another sequence.

    That one begins with the tokens that end the reasoning; the cache has what was computed before them.
    """

    def __init__(self, turn: Turn, max_tokens: int | None) -> None:
        self.answer = turn.answer()
        self.ended = False
        self._turn = turn
        self._budget = turn.request.reasoning_budget
        self._max_tokens = max_tokens
        self._before: Timings | None = None  # of the answer before the sequence that is generated now

    def take(self, piece: Piece, timings: Timings) -> ChatDelta:
        """What became certain with a piece of a sequence with these timings."""
        tokens = [] if piece.token is None else [piece.token]
        found = [TokenLogprob(token, piece.logprobs.logprob, piece.logprobs.top) for token in tokens if piece.logprobs]
        delta = self.answer.take(piece.text, tokens, found)
        if piece.finish_reason is None:
            return delta
        self.ended = True
        whole = self.timings(timings)
        end = self.answer.finish(piece.finish_reason, whole.prompt_tokens, whole.prompt_cached)
        return delta.followed_by(end)

    def is_spent(self) -> bool:
        """Whether the reasoning must end here."""
        return self._budget is not None and self.answer.in_reasoning and self.answer.n_reasoning >= self._budget

    def timings(self, latest: Timings) -> Timings:
        """Of the answer so far; ``latest`` are those of its sequence that is generated now."""
        if self._before is None:
            return latest
        seconds = latest.queue_seconds + latest.prompt_seconds + latest.generation_seconds
        return replace(
            self._before,
            generated_tokens=len(self.answer.tokens),
            generation_seconds=self._before.generation_seconds + seconds,
        )

    def end_reasoning(self, timings: Timings) -> tuple[list[int], int | None]:
        """The tokens to go on after, and how many may come; the sequence so far ended with these timings."""
        self._before = self.timings(timings)
        text, tokens = self._turn.end_of_reasoning
        self.answer.take(text, tokens)
        n_left = None if self._max_tokens is None else max(0, self._max_tokens - len(self.answer.tokens))
        return [*self._turn.prompt.tokens, *self.answer.tokens], n_left


class ChatStream(Iterator[ChatDelta]):
    """The deltas of one answer. After the last, ``completion`` has all of it.

    The model computes ahead of who reads. Closing the stream, leaving its loop or dropping it cancels the rest.
    """

    def __init__(self, turn: Turn, start: Start, max_tokens: int | None) -> None:
        self._deltas = _Deltas(turn, max_tokens)
        self._start = start
        self._stream = start(turn.prompt.tokens, max_tokens)

    def __next__(self) -> ChatDelta:
        while not self._deltas.ended:
            if self._deltas.is_spent():
                self._stream.close()
                self._stream = self._start(*self._deltas.end_reasoning(self._stream.timings))
            delta = self._deltas.take(next(self._stream), self._stream.timings)
            if not delta.is_empty:
                return delta
        raise StopIteration

    def completion(self) -> ChatCompletion:
        """Run to the end, and give everything."""
        for _ in self:
            pass
        return self._deltas.answer.completion()

    @property
    def timings(self) -> Timings:
        """Of what came by now; complete once the stream has ended or was closed."""
        return self._deltas.timings(self._stream.timings)

    def close(self) -> None:
        """Cancel what is not generated yet."""
        self._stream.close()

    def __enter__(self) -> ChatStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncChatStream(AsyncIterator[ChatDelta]):
    """As ``ChatStream``, for the event loop it is made in."""

    def __init__(self, turn: Turn, start: AsyncStart, max_tokens: int | None) -> None:
        self._deltas = _Deltas(turn, max_tokens)
        self._start = start
        self._stream = start(turn.prompt.tokens, max_tokens)

    async def __anext__(self) -> ChatDelta:
        while not self._deltas.ended:
            if self._deltas.is_spent():
                await self._end_reasoning()
            delta = self._deltas.take(await anext(self._stream), self._stream.timings)
            if not delta.is_empty:
                return delta
        raise StopAsyncIteration

    async def ready(self) -> list[ChatDelta]:
        """What became certain by now, in as few deltas as tell it; none after the last."""
        deltas: list[ChatDelta] = []
        while not deltas and not self._deltas.ended:
            if self._deltas.is_spent():
                await self._end_reasoning()
            for piece in await self._stream.ready():
                if self._deltas.is_spent():
                    break
                delta = self._deltas.take(piece, self._stream.timings)
                if deltas and deltas[-1].may_join(delta):
                    deltas[-1] = deltas[-1].followed_by(delta)
                elif not delta.is_empty:
                    deltas.append(delta)
        return deltas

    async def _end_reasoning(self) -> None:
        """Go on in a sequence that begins with the end of the reasoning."""
        self._stream.close()
        ended = (await self._stream.completion()).timings
        self._stream = self._start(*self._deltas.end_reasoning(ended))

    async def accepted(self) -> None:
        """Wait until the engine has taken the request. Raises as ``Model.chat`` where it refuses it."""
        await self._stream.accepted()

    async def completion(self) -> ChatCompletion:
        """Run to the end, and give everything."""
        while await self.ready():
            pass
        return self._deltas.answer.completion()

    @property
    def timings(self) -> Timings:
        """Of what came by now; complete once the stream has ended."""
        return self._deltas.timings(self._stream.timings)

    def close(self) -> None:
        """Cancel what is not generated yet."""
        self._stream.close()

    async def __aenter__(self) -> AsyncChatStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
