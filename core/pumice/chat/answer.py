"""Collect a streamed answer: text and tokens in, deltas out, and the whole message at the end."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable, Sequence

from pumice.chat.messages import ChatCompletion, ChatDelta, FinishReason, Message, TokenLogprob, ToolCall, Usage
from pumice.chat.parser import AnswerPart, ChatParser

_ID_SYMBOLS = string.ascii_letters + string.digits
_ID_LENGTH = 9  # characters; Mistral's templates refuse any other number


class AnswerBuilder:
    """Collects the deltas of one answer.

    Attributes:
        tokens: token ids of the answer so far.
        n_reasoning: number of ``tokens`` that belong to the reasoning.
    """

    def __init__(
        self,
        parser: ChatParser,
        parallel_tool_calls: bool = True,
        audio_tokens: int = 0,
        used_ids: Iterable[str] = (),
    ) -> None:
        """``used_ids``: identifiers of earlier calls in the chat, which calls of this answer do not repeat."""
        self._used_ids = set(used_ids)
        self._audio_tokens = audio_tokens
        self._parser = parser
        self._parallel = parallel_tool_calls
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._logprobs: list[TokenLogprob] = []
        self._end = ChatDelta()
        self.tokens: list[int] = []
        self.n_reasoning = 0

    def take(self, text: str, tokens: Sequence[int] = (), logprobs: Sequence[TokenLogprob] = ()) -> ChatDelta:
        """Return the delta that is certain once ``text``, the text of ``tokens``, has arrived."""
        self.tokens += tokens
        self._logprobs += logprobs
        self.n_reasoning += len(tokens) if self._parser.in_reasoning else 0
        delta = self._delta(self._parser.push(text))
        return delta._replace(logprobs=logprobs) if logprobs else delta

    def finish(self, reason: FinishReason, n_prompt: int, n_cached: int) -> ChatDelta:
        """Return the last delta, with the finish reason and the usage.

        Args:
            n_prompt: number of prompt tokens.
            n_cached: number of prompt tokens that were read from the KV cache.
        """
        delta = self._delta(self._parser.finish(cut=reason != "stop"))
        called = self._calls and reason == "stop"
        usage = Usage(n_prompt, n_cached, len(self.tokens), self.n_reasoning, self._audio_tokens)
        self._end = ChatDelta(
            delta.content, delta.reasoning, delta.tool_calls, "tool_calls" if called else reason, usage
        )
        return self._end

    def completion(self) -> ChatCompletion:
        """Return the whole answer; call it after ``finish``."""
        assert self._end.finish_reason is not None
        assert self._end.usage is not None
        message = Message("".join(self._content), "".join(self._reasoning), self._calls)
        return ChatCompletion(message, self._end.finish_reason, self._end.usage, self.tokens, self._logprobs or None)

    def _delta(self, parts: Sequence[AnswerPart]) -> ChatDelta:
        content, reasoning, calls = "", "", list[ToolCall]()
        for part in parts:
            if part[0] == "content":
                content += part[1]
            elif part[0] == "reasoning":
                reasoning += part[1]
            elif self._parallel or not (self._calls or calls):
                call = part[1]
                calls.append(ToolCall(call.name, dict(call.arguments), self._unique_id(call.id), call.partial))
        self._content.append(content)
        self._reasoning.append(reasoning)
        self._calls += calls
        return ChatDelta(content, reasoning, calls)

    def _unique_id(self, written: str) -> str:
        """Return the identifier that the model wrote, or a new one if there is none or if it is taken."""
        while not written or written in self._used_ids:
            written = "".join(secrets.choice(_ID_SYMBOLS) for _ in range(_ID_LENGTH))
        self._used_ids.add(written)
        return written
