"""Chat: messages in, typed messages out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

from pumice.chat.tools import MAX_TURNS
from pumice.engine import Request
from pumice.errors import RequestError
from pumice.frontend.base import spans_of
from pumice.frontend.generating import Generating, PromptProgress, single
from pumice.grammar import grammar_source, read_triggers
from pumice.options import CHAT, TEMPLATE, ChatOptions, SortedOptions, TemplateOptions, documented, sort_options
from pumice.streaming.stream import AsyncStream, Stream
from pumice.tracebacks import short_traceback

if TYPE_CHECKING:  # imported by the first chat
    from pumice.chat import Chat, ChatCompletion, Messages, Turn
    from pumice.frontend.tool_loop import RunTools, ToolLoop
    from pumice.streaming.chat import AsyncChatStream, ChatStream

_documented = documented(CHAT, max_tokens=None)


class Chatting(Generating):
    """Chats by the template of the model's file, or the configured one."""

    @short_traceback
    @documented(TEMPLATE)
    def apply_template(self, messages: Messages, **options: Unpack[TemplateOptions]) -> str:
        """Return the prompt that the chat template makes from messages.

        The prompt has no BOS if ``tokenize`` adds it, so that ``generate`` takes it as it is.

        Args:
            messages: The conversation so far, as in ``chat``.

        Raises:
            RequestError: The template refuses the messages, or an option is wrong.
        """
        from pumice.chat import ChatRequest

        return self._chat.text(ChatRequest.read(messages, **options))

    @short_traceback
    @_documented
    def chat(
        self,
        messages: Messages,
        *,
        progress: PromptProgress = None,
        run_tools: RunTools = False,
        max_tool_turns: int = MAX_TURNS,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion:
        """Return the assistant's next message.

        Args:
            messages: The conversation so far: messages that ``chat`` returned, or objects with ``role`` and
                ``content``, which is text, or a list of texts, ``pumice.Image``, ``pumice.Audio`` and
                ``pumice.Video``.
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
        loop = self.tool_loop(messages, options, run_tools, max_tool_turns)
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
    @_documented
    async def achat(
        self,
        messages: Messages,
        *,
        progress: PromptProgress = None,
        run_tools: RunTools = False,
        max_tool_turns: int = MAX_TURNS,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion:
        """Like ``chat``, for a coroutine. Functions of tools may be async; the calls of an answer run together."""
        if run_tools is False:
            return await self._achat(messages, progress, options)
        loop = self.tool_loop(messages, options, run_tools, max_tool_turns)
        with loop.attach_messages():
            while True:
                completion = await self._achat(loop.messages, progress, loop.options)
                calls = loop.calls(completion)
                if not calls:
                    return loop.result(completion)
                await loop.arun(calls)

    async def _achat(self, messages: Messages, progress: PromptProgress, options: Mapping[str, Any]) -> ChatCompletion:
        """Return an answer; the event loop does not wait while media are decoded and encoded."""
        from pumice.chat.media import has_media

        prepared: Messages | Turn = messages
        if has_media(messages):
            from asyncio import to_thread

            prepared = await to_thread(self.prepare_chat, messages, **options)
        async with self.achat_stream(prepared, progress=progress, **options) as stream:
            return await stream.completion()

    @short_traceback
    @_documented
    def chat_stream(
        self, messages: Messages, *, progress: PromptProgress = None, **options: Unpack[ChatOptions]
    ) -> ChatStream:
        """Like ``chat``, but return deltas as they are generated.

        Closing the stream or leaving its loop cancels the rest.
        """
        from pumice.streaming.chat import ChatStream

        turn, request = self._answer_request(messages, options)
        return ChatStream(turn, Stream.open(self.client, request, progress)[0])

    @short_traceback
    @_documented
    def achat_stream(
        self, messages: Messages | Turn, *, progress: PromptProgress = None, **options: Unpack[ChatOptions]
    ) -> AsyncChatStream:
        """Like ``chat_stream``, for a coroutine: ``async for delta in model.achat_stream(...)``.

        Args:
            messages: The conversation so far, or what ``prepare_chat`` returned for it with the same options.
            progress: Called with the number of prompt tokens that have been read and with their total.

        A thread encodes images and sounds when the first delta is wanted, which then raises the errors of the request.
        """
        from pumice.chat.media import has_media
        from pumice.streaming.chat import AsyncChatStream

        if has_media(messages):
            _check_streamed(options)
            prepare = partial(self._answer_request, messages, options)
            return AsyncChatStream.later(self.client, prepare, progress)
        turn, request = self._answer_request(messages, options)
        return AsyncChatStream(turn, AsyncStream.open(self.client, request, progress)[0])

    @_documented
    def prepare_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Turn:
        """Render the prompt of a chat and compile its grammar, without generating.

        Pass the result to ``achat_stream`` in place of the messages. A long chat can take seconds; any thread may
        prepare it.

        Args:
            messages: The conversation so far, as in ``chat``.

        Raises:
            RequestError: As ``chat``, except for a prompt that does not fit.
        """
        _check_streamed(options)
        return self._prepare(messages, sort_options(options))

    @property
    def has_chat_template(self) -> bool:
        """True if the configuration or the model's file has a chat template."""
        from pumice.chat.template import has_template

        return bool(self.config.chat_template) or has_template(self.metadata)

    def template_capabilities(self, chat_template: str | None = None) -> Mapping[str, bool]:
        """Return what the chat template supports, by llama-server's names such as ``supports_tools``.

        Args:
            chat_template: Name of a template, or its text; None takes the model's.

        Returns:
            True or False by name; empty without a template.

        Raises:
            ModelError: ``chat_template`` is no template.
        """
        return self._chat.capabilities(chat_template)

    def tool_loop(
        self, messages: Messages, options: Mapping[str, Any], run_tools: RunTools, max_turns: int = MAX_TURNS
    ) -> ToolLoop:
        """Return the turns of ``chat(..., run_tools=...)``, for callers that show each answer as it is generated.

        Args:
            messages: The conversation so far, as in ``chat``.
            options: Options of ``chat``.
            run_tools: As in ``chat``.
            max_turns: Maximum number of answers.
        """
        from pumice.frontend.tool_loop import ToolLoop

        tokenize = partial(self.tokenize, add_special=False, parse_special=False)
        return ToolLoop(messages, options, run_tools, max_turns, n_ctx=self.n_ctx, tokenize=tokenize)

    def _prepare(self, messages: Messages, options: SortedOptions) -> Turn:
        from pumice.audio import SoundBudget
        from pumice.chat import ChatRequest

        request = ChatRequest.read(messages, **options.template)
        forms = dict(options.output)
        triggers = forms.pop("grammar_triggers", None)
        form = grammar_source(**forms, response_format=request.response_format)
        begins = read_triggers(triggers, form)
        if begins and request.tools:
            raise RequestError("grammar_triggers: tools begin their calls themselves; give no tools, or no triggers")
        encode = partial(self._encode_media, salt=options.request.get("cache_salt", ""), together=SoundBudget())
        turn = self._chat.turn(request, form, encode)
        return replace(turn, grammar=replace(turn.grammar, begins=begins)) if begins and turn.grammar else turn

    def _answer_request(self, messages: Messages | Turn, options: Mapping[str, Any]) -> tuple[Turn, Request]:
        """Return the turn of messages, and the request that generates its answer."""
        from pumice.chat import Turn

        _check_streamed(options)
        parts = sort_options(options)
        turn = messages if isinstance(messages, Turn) else self._prepare(messages, parts)
        settings = {"max_tokens": None, "special": turn.special, **parts.request}
        answer = parts._replace(request=settings, output={"grammar": turn.grammar})
        return turn, single(self._request(turn.prompt.tokens, answer, turn.budget, spans_of(turn.prompt.media)))

    @cached_property
    def _chat(self) -> Chat:
        from pumice.chat import Chat

        template = self.config.chat_template or None
        return Chat(self.metadata, self.tokenizer, self._formats, template, checker=self._checker, n_ctx=self.n_ctx)


def _check_streamed(options: Mapping[str, Any]) -> None:
    """Raise RequestError for an argument of ``chat`` that methods for a single answer lack."""
    for name in ("run_tools", "max_tool_turns"):
        if name in options:
            raise RequestError(f"{name} is an argument of chat and achat; a stream has one answer, and runs no tools")
