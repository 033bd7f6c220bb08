"""Chat: messages in, typed messages out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pumice.chat import OPTIONS, Chat, ChatCompletion, ChatRequest, Messages, Turn
from pumice.chat.template import has_template
from pumice.chat_stream import AsyncChatStream, ChatStream
from pumice.frontend.generating import Generating, Progress
from pumice.grammar import FORMS, grammar_source


class Chatting(Generating):
    """Chats by the template of the model's file, or the configured one."""

    def apply_template(self, messages: Messages, **options: Any) -> str:
        """Return the prompt that the chat template makes from messages; ``options`` are those of ``ChatRequest``.

        Without BOS where ``tokenize`` adds it, so that ``generate`` takes it as it is.
        """
        return self._chat.text(ChatRequest.read(messages, **options))

    def chat(self, messages: Messages, **options: Any) -> ChatCompletion:
        """Return the assistant's next message.

        Args:
            messages: The conversation so far: messages that ``chat`` returned, or objects with ``role`` and
                ``content``.
            options: Options of ``ChatRequest`` (tools, tool_choice, reasoning, ...) and of ``request``; without
                ``max_tokens`` the model ends the answer. ``progress`` as in ``generate``.

        Raises:
            RequestError: The template refuses the messages, the prompt does not fit, or an option is wrong.
        """
        with self.chat_stream(messages, **options) as stream:
            return stream.completion()

    async def achat(self, messages: Messages, **options: Any) -> ChatCompletion:
        """Like ``chat``, for a coroutine."""
        async with self.achat_stream(messages, **options) as stream:
            return await stream.completion()

    def chat_stream(
        self, messages: Messages, *, max_tokens: int | None = None, progress: Progress = None, **options: Any
    ) -> ChatStream:
        """Like ``chat``, but return deltas as they come. Closing the stream or leaving its loop cancels the rest."""
        turn, options = self._turn(messages, options)
        return ChatStream(turn, self.stream(turn.prompt.tokens, max_tokens=max_tokens, progress=progress, **options))

    def achat_stream(
        self, messages: Messages | Turn, *, max_tokens: int | None = None, progress: Progress = None, **options: Any
    ) -> AsyncChatStream:
        """Like ``chat_stream``, for a coroutine: ``async for delta in model.achat_stream(...)``.

        ``messages`` may also be what ``prepare_chat`` made of them with the same options.
        """
        turn, options = self._turn(messages, options)
        stream = self.astream(turn.prompt.tokens, max_tokens=max_tokens, progress=progress, **options)
        return AsyncChatStream(turn, stream)

    def prepare_chat(self, messages: Messages, **options: Any) -> Turn:
        """What ``chat`` makes of messages before it generates. Long ones take a while; any thread may do it.

        Raises as ``chat``, but for a prompt that does not fit.
        """
        request = ChatRequest.read(messages, **{k: v for k, v in options.items() if k in OPTIONS})
        form = {k: v for k, v in options.items() if k in FORMS}
        return self._chat.turn(request, grammar_source(**form, response_format=request.response_format))

    @property
    def has_chat_template(self) -> bool:
        """True if the configuration or the model's file has a chat template."""
        return bool(self.config.chat_template) or has_template(self.metadata)

    def template_capabilities(self, chat_template: str | None = None) -> Mapping[str, bool]:
        """What the chat template can do, by llama-server's names: ``supports_tools``, ``supports_system_role``, ....

        Args:
            chat_template: the name of a template, or a template; None: that of the model.

        Empty without a template. Raises ModelError if it is none.
        """
        return self._chat.capabilities(chat_template)

    def _turn(self, messages: Messages | Turn, options: Mapping[str, Any]) -> tuple[Turn, dict[str, Any]]:
        """The turn, and the options of its generation."""
        turn = messages if isinstance(messages, Turn) else self.prepare_chat(messages, **options)
        rest = {k: v for k, v in options.items() if k not in OPTIONS and k not in FORMS}
        return turn, {"special": turn.special, **rest, "grammar": turn.grammar, "budget": turn.budget}

    @cached_property
    def _chat(self) -> Chat:
        template = self.config.chat_template or None
        return Chat(self.metadata, self.tokenizer, self._formats, template, checker=self._checker, n_ctx=self.n_ctx)
