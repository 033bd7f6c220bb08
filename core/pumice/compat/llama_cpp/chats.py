"""Answers of ``Llama`` in chats: a request, and its results as dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pumice
from pumice import Logprobs
from pumice.chat.messages import TokenLogprob
from pumice.compat.llama_cpp import results
from pumice.compat.llama_cpp.options import ChatOptions


@dataclass
class ChatRun:
    """One answer.

    Attributes:
        chat: The rendered prompt, and what generates the answer.
        tokens: Tokens of the prompt and of the answer so far.
    """

    model: pumice.Model
    chat: pumice.PreparedChat
    tokens: list[int] = field(default_factory=list)

    @classmethod
    def prepare(
        cls,
        model: pumice.Model,
        messages: Sequence[Mapping[str, object]],
        options: ChatOptions,
        chosen: pumice.GenerateOptions,
    ) -> ChatRun:
        """Return the run of messages. Raises RequestError."""
        limit = options.get("max_tokens")
        settings: dict[str, object] = {"max_tokens": limit if limit is not None and limit > 0 else None}
        tools, choice = options.get("tools"), options.get("tool_choice")
        if functions := options.get("functions"):  # of OpenAI's first interface
            tools = [{"type": "function", "function": function} for function in functions]
        call = options.get("function_call")
        if isinstance(call, Mapping):
            choice = {"type": "function", "function": {"name": call["name"]}}
        elif call is not None:
            choice = call
        settings |= {"tools": tools or (), "tool_choice": "auto" if choice is None or not tools else choice}
        settings |= {"response_format": options.get("response_format"), "separate_reasoning": False}
        if options.get("logprobs"):
            settings["logprobs"] = options.get("top_logprobs") or 0
        chat = model.template.prepare(messages, **cast("pumice.ChatOptions", {**chosen, **settings}))
        return cls(model, chat, list(chat.request.prompt))

    def whole(self, name: str) -> results.CreateChatCompletionResponse:
        """Return the answer."""
        completion = self.model.chat(self.chat)
        self.tokens += completion.tokens
        calls = results.tool_calls(completion.message.tool_calls)
        message: results.ChatMessage = {"role": "assistant", "content": completion.message.content}
        if calls:
            message["content"] = completion.message.content or None
            message["function_call"], message["tool_calls"] = calls[0]["function"], calls
        choice: results.ChatChoice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(completion.logprobs),
            "finish_reason": results.finish_reason(completion.finish_reason),
        }
        envelope = results.Envelope.new(name, "chatcmpl-")
        return {
            "id": envelope.id,
            "object": "chat.completion",
            "created": envelope.created,
            "model": envelope.model,
            "choices": [choice],
            "usage": results.usage(completion.usage.prompt_tokens, completion.timings.generated_tokens),
        }

    def stream(self, name: str) -> Iterator[results.CreateChatCompletionStreamResponse]:
        """Yield the answer by parts: its role, texts, calls, and why it ended."""
        part, n_calls = results.Envelope.new(name, "chatcmpl-"), 0
        with self.model.chat_stream(self.chat) as deltas:
            yield part.delta({"role": "assistant"})
            for delta in deltas:
                logprobs = self._logprobs(delta.logprobs)
                if delta.content or (logprobs and not delta.tool_calls and not delta.finish_reason):
                    yield part.delta({"content": delta.content}, logprobs)
                for call in results.tool_calls(delta.tool_calls):
                    call["index"] = n_calls
                    n_calls += 1
                    yield part.delta(
                        {"role": None, "content": None, "function_call": call["function"], "tool_calls": [call]}
                    )
                if delta.finish_reason:
                    yield part.delta({}, None, results.finish_reason(delta.finish_reason))
            self.tokens += deltas.tokens

    def _logprobs(self, entries: Sequence[TokenLogprob] | None) -> results.ChatLogprobs | None:
        if not entries:
            return None
        pairs = [(entry.token, Logprobs(entry.logprob, entry.top)) for entry in entries]
        return results.chat_logprobs(self.model.tokenizer, pairs)
