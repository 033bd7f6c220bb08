"""The chat template of a model: prompts of messages, and requests for answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

from pumice.errors import RequestError
from pumice.frontend.engine import ModelEngine
from pumice.frontend.media import Media
from pumice.frontend.requests import RequestMaker, check_single
from pumice.grammar import grammar_source, read_triggers
from pumice.options import CHAT, TEMPLATE, ChatOptions, SortedOptions, TemplateOptions, documented, sort_options
from pumice.tracebacks import short_traceback

if TYPE_CHECKING:  # imported by the first chat
    from pumice.chat import Chat, Messages, Turn
    from pumice.streaming.chat import PreparedChat


class Template:
    """The template of the model's file, or the configured one: ``model.template``."""

    def __init__(self, engine: ModelEngine, media: Media, requests: RequestMaker) -> None:
        self._engine = engine
        self._media = media
        self._requests = requests

    @property
    def exists(self) -> bool:
        """True if the configuration or the model's file has a chat template."""
        from pumice.chat.template import has_template

        return bool(self._engine.config.chat_template) or has_template(self._engine.file.metadata)

    def capabilities(self, chat_template: str | None = None) -> Mapping[str, bool]:
        """Return what the chat template supports, by llama-server's names such as ``supports_tools``.

        Args:
            chat_template: Name of a template, or its text; None takes the model's.

        Returns:
            True or False by name; empty without a template.

        Raises:
            ModelError: ``chat_template`` is no template.
        """
        return self._chat.capabilities(chat_template)

    @short_traceback
    @documented(TEMPLATE)
    def apply(self, messages: Messages, **options: Unpack[TemplateOptions]) -> str:
        """Return the prompt that the chat template makes from messages.

        The prompt has no BOS if ``tokenize`` adds it, so that ``generate`` takes it as it is.

        Args:
            messages: The conversation so far, as in ``Model.chat``.

        Raises:
            RequestError: The template refuses the messages, or an option is wrong.
        """
        from pumice.chat import ChatRequest

        return self._chat.text(ChatRequest.read(messages, **options))

    @short_traceback
    @documented(CHAT, max_tokens=None)
    def prepare(self, messages: Messages, **options: Unpack[ChatOptions]) -> PreparedChat:
        """Render the prompt of a chat and check its grammar, without generating.

        ``chat_stream`` and ``achat_stream`` take the result in place of the messages. A long chat can take seconds; any
        thread may prepare it.

        Args:
            messages: The conversation so far, as in ``Model.chat``.

        Raises:
            RequestError: As ``Model.chat``, except for a prompt that does not fit.
        """
        return self.prepared(messages, options)

    def prepared(self, messages: Messages | PreparedChat, options: Mapping[str, Any]) -> PreparedChat:
        """Return a prepared chat; one that was prepared before is returned as it is. Raises RequestError."""
        from pumice.streaming.chat import PreparedChat

        if isinstance(messages, PreparedChat):
            if options:
                raise RequestError(f"{next(iter(options))}: the chat has its options already; prepare it with this one")
            return messages
        check_streamed(options)
        parts = sort_options(options)
        turn = self._turn(messages, parts)
        settings = {"max_tokens": None, "special": turn.special, **parts.request}
        answer, media = parts._replace(request=settings), turn.prompt.media
        request = check_single(self._requests.of(turn.prompt.tokens, answer, turn.grammar, turn.budget, media))
        if turn.end and not parts.sampling.get("ignore_eos"):
            request = replace(request, stop=[*request.stop, turn.end])
        return PreparedChat(turn, request)

    def _turn(self, messages: Messages, options: SortedOptions) -> Turn:
        from pumice.chat import ChatRequest
        from pumice.media.audio import SoundBudget

        request = ChatRequest.read(messages, **options.template)
        forms = dict(options.output)
        triggers = forms.pop("grammar_triggers", None)
        form = grammar_source(**forms, response_format=request.response_format)
        begins = read_triggers(triggers, form)
        if begins and request.tools:
            raise RequestError("grammar_triggers: tools begin their calls themselves; give no tools, or no triggers")
        encode = partial(self._media.encode, salt=options.request.get("cache_salt", ""), together=SoundBudget())
        turn = self._chat.turn(request, form, encode)
        return replace(turn, grammar=replace(turn.grammar, begins=begins)) if begins and turn.grammar else turn

    @cached_property
    def _chat(self) -> Chat:
        from pumice.chat import Chat

        engine, template = self._engine, self._engine.config.chat_template or None
        formats, n_ctx = engine.registry.chat_formats.working(), engine.facts.n_ctx
        return Chat(engine.file.metadata, engine.tokenizer(), formats, template, checker=engine.checker, n_ctx=n_ctx)


def check_streamed(options: Mapping[str, Any]) -> None:
    """Raise RequestError for an argument of ``chat`` that methods for a single answer lack, or one of ``generate``."""
    for name in ("run_tools", "max_tool_turns"):
        if name in options:
            raise RequestError(f"{name} is an argument of chat and achat; a stream has one answer, and runs no tools")
    for name in ("echo", "suffix"):
        if options.get(name):
            raise RequestError(f"{name}: a chat has no such option; generate and stream continue a text as it is")
