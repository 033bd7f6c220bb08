"""The chat side of a model: its template and format, prompts from messages, and parsers of its answers."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

from pumice.chat.answer import AnswerBuilder
from pumice.chat.answer_grammar import answer_grammar
from pumice.chat.builtin import ENDS
from pumice.chat.families import GENERIC
from pumice.chat.formats import ChatFormat, detect
from pumice.chat.isolated import TemplateWorkers, template_workers
from pumice.chat.media import NO_MEDIA, kind_of
from pumice.chat.mixed import (
    MARKER,
    EncodeMedia,
    at_markers,
    encode_media,
    tokenize_parts,
    within,
)
from pumice.chat.parser import ChatParser
from pumice.chat.prompt import PromptJob
from pumice.chat.request import ChatRequest
from pumice.chat.special_tokens import special_spellings, tokenize_marked
from pumice.chat.template import ChatTemplate, ChatTemplates
from pumice.embeddings import Embeddings
from pumice.errors import RequestError
from pumice.grammar import Grammar, GrammarChecker, ReasoningBudget
from pumice.tokenizers import Tokenizer
from pumice.wording import did_you_mean

logger = logging.getLogger("pumice")


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MAX_CACHED_TEMPLATES = 16  # per model


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered prompt.

    Attributes:
        text: text that the template rendered.
        tokens: its token ids.
        opening: end of ``text`` that already belongs to the answer.
        media: embeddings of images and sounds.
    """

    text: str
    tokens: list[int]
    opening: str
    media: list[Embeddings] = field(default_factory=list)

    @property
    def audio_tokens(self) -> int:
        """Tokens of sounds."""
        return sum(part.n_rows for part in self.media if part.kind == "audio")


@dataclass(frozen=True)
class Turn:
    """A turn of the assistant, ready to be generated.

    Attributes:
        request: the checked request.
        format: how the model writes reasoning and tool calls.
        prompt: the rendered prompt.
        special: control tokens that are marks of the format: their spelling is part of the answer's text.
        grammar: grammar that constrains the answer, if any.
        budget: limit on the tokens of the reasoning, if any.
        end: text that ends the answer, of a built-in template whose mark is no token of the model; empty for none.
    """

    request: ChatRequest
    format: ChatFormat
    prompt: ChatPrompt
    special: frozenset[int]
    grammar: Grammar | None
    budget: ReasoningBudget | None
    end: str = ""

    def answer(self) -> AnswerBuilder:
        """Return a new builder for the answer of this turn."""
        request = self.request
        has_form = self.grammar is not None and not self.grammar.again
        parser = ChatParser(self.format, request.tools, self.prompt.opening, request.separate_reasoning, has_form)
        used_ids = (call["id"] for message in request.messages for call in message.get("tool_calls") or ())
        return AnswerBuilder(parser, request.parallel_tool_calls, self.prompt.audio_tokens, used_ids)


@dataclass(frozen=True)
class _TemplateInfo:
    """A template with its capabilities, and its format for this model. Failed analyses are not cached."""

    template: ChatTemplate
    capabilities: Mapping[str, bool]
    format: ChatFormat
    special: frozenset[int]

    @property
    def describes_tools(self) -> bool:
        """True if the template shows no tools, and no format of calls is known: the system message describes both."""
        return not self.template.traits.has_tools and self.format.calls == GENERIC.calls


class Chat:
    """Prepares turns for one model. It does not run the model; all threads may share it."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tokenizer: Tokenizer,
        formats: Mapping[str, ChatFormat],
        chat_template: str | None = None,
        workers: TemplateWorkers | None = None,
        checker: GrammarChecker | None = None,
        n_ctx: int | None = None,
    ) -> None:
        """Initialize from a model's metadata.

        Args:
            metadata: metadata of the GGUF file, with its chat templates.
            tokenizer: tokenizer of the model.
            formats: registered chat formats by name.
            chat_template: template, or name of one, for requests that name none.
            workers: processes that render templates; None: the ones that this process shares.
            checker: checks the grammars of answers before the engine compiles them; None: in this process.
            n_ctx: context size in tokens; a prompt that is far longer is refused before it is tokenized.
        """
        self._tokenizer = tokenizer
        self._n_ctx = n_ctx
        self._checker = checker or GrammarChecker()
        self._formats = formats
        self._templates = ChatTemplates(metadata, chat_template)
        self._workers = workers or template_workers()
        self._templates_info: OrderedDict[str, _TemplateInfo] = OrderedDict()  # by source, least recently added first

    def text(self, request: ChatRequest) -> str:
        """Return the prompt as text, without BOS if the tokenizer adds it. Raises like ``turn``.

        ``MARKER`` stands for each image and sound.
        """
        text = self.turn(request, encode=lambda media: [MARKER]).prompt.text
        bos = self._tokenizer.bos
        return text if bos is None or not self._tokenizer.add_bos else text.removeprefix(self._spelling(bos))

    def turn(self, request: ChatRequest, form: str | None = None, encode: EncodeMedia | None = None) -> Turn:
        """Prepare the next turn: render the prompt and compile the answer's grammar.

        Args:
            request: the checked request.
            form: grammar that the answer has to fit, as llguidance's source.
            encode: encodes images and sounds; None refuses them.

        Raises:
            RequestError: there is no template, it refuses the messages, or tool calls cannot be enforced.
            UnavailableError: no worker can render the template now.
        """
        info = self._analyze(self._templates.source(request.chat_template, for_tools=bool(request.tools)))
        _check_roles(request.messages, info.template.source)
        if request.tools and not info.template.traits.has_tools:
            _tell_once(info.template.source, info.describes_tools)
        format, prompt = info.format, self._prompt(request, info, encode)
        request = replace(request, media=())  # their memory is free while the answer is generated
        marks = {self._spelling(token): token for token in info.special}
        grammar = answer_grammar(request, format, prompt.opening, marks, form, self._checker)
        if grammar:
            self._checker.check(grammar.source, lambda: self._tokenizer)
        budget, end = self._budget(request, format, prompt.opening), ENDS.get(info.template.source, "")
        end = "" if end in self._spellings else end
        return Turn(request, format, prompt, info.special, grammar, budget, end)

    def capabilities(self, chat_template: str | None = None) -> Mapping[str, bool]:
        """Return the capabilities of the given template or the model's; empty without one. Raises like ``turn``."""
        try:
            source = self._templates.source(chat_template)
        except RequestError:
            return {}
        return self._analyze(source).capabilities

    def _budget(self, request: ChatRequest, format: ChatFormat, opening: str) -> ReasoningBudget | None:
        begin, end = format.reasoning
        if request.reasoning_budget is None or not end:
            return None
        closing = f"{request.reasoning_budget_message}\n{end}{format.after_reasoning}"
        tokens = self._tokenizer.tokenize_following(closing)
        return ReasoningBudget(request.reasoning_budget, tokens, begin, end, reasons=format.reasons_after(opening))

    def _prompt(self, request: ChatRequest, info: _TemplateInfo, encode: EncodeMedia | None) -> ChatPrompt:
        if request.media and encode is None:
            raise RequestError(f"messages: {NO_MEDIA}")
        marker = f"<__media_{secrets.token_hex(16)}__>" if request.media else ""
        job = PromptJob(
            template=info.template,
            spellings=self._spellings,
            marks=(*info.format.reasoning, info.format.after_reasoning),
            messages=request.messages,
            tools=request.tools,
            variables=request.template_variables,
            reasoning=request.reasoning,
            continues=request.continues,
            add_generation_prompt=request.add_generation_prompt,
            media=[kind_of(item) for item in request.media],
            marker=marker,
            describes_tools=info.describes_tools,
        )
        written = self._workers.write(job)
        if self._n_ctx is not None:
            self._tokenizer.check_fits([written.text], self._n_ctx)
        text = written.text.replace(written.mark, "")
        if not request.media or encode is None:
            tokens = tokenize_marked(self._tokenizer, written.text, written.mark)
            return ChatPrompt(text, tokens, written.opening)
        first = partial(tokenize_marked, self._tokenizer, mark=written.mark)
        following = partial(self._tokenizer.tokenize_following, mark=written.mark)
        parts = encode_media(at_markers(written.text.split(marker), request.media), encode)
        parts = parts if self._n_ctx is None else within(parts, self._n_ctx)
        tokens, media = tokenize_parts(parts, first, following)
        return ChatPrompt(text.replace(marker, MARKER), tokens, written.opening, media)

    def _analyze(self, source: str) -> _TemplateInfo:
        info = self._templates_info.get(source)
        if info is None:
            bos, eos = (
                "" if token is None else self._spelling(token) for token in (self._tokenizer.bos, self._tokenizer.eos)
            )
            description = self._workers.describe(ChatTemplate(source, bos, eos))
            probed = description.format if description.format.is_sound else GENERIC
            format = detect(source, self._formats.values()) or probed
            info = _TemplateInfo(description.template, description.capabilities, format, self._special(format))
            self._templates_info[source] = info
            while len(self._templates_info) > _MAX_CACHED_TEMPLATES:
                self._templates_info.popitem(last=False)
        return info

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        return special_spellings(self._tokenizer)

    def _special(self, format: ChatFormat) -> frozenset[int]:
        hidden = self._tokenizer.vocabulary.hidden - self._tokenizer.eog
        return frozenset(token for token in hidden if any(self._spelling(token) in text for text in format.literals))

    def _spelling(self, token: int) -> str:
        return self._tokenizer.vocabulary.tokens[token]


@lru_cache(maxsize=64)
def _tell_once(source: str, described: bool) -> None:
    """Say, once per template, how the tools of a request reach the model, or warn that they do not."""
    if described:
        logger.info(
            "the chat template shows no tools: the system message describes them, and calls are <tool_call> JSON"
        )
        return
    logger.warning(
        "the chat template does not show tools to the model, so it is unlikely to call any; use a template with tools"
    )


def _check_roles(messages: Sequence[Mapping[str, Any]], source: str) -> None:
    """Raise RequestError for a role that looks mistyped and that the template does not mention."""
    for number, message in enumerate(messages):
        role = message["role"]
        if role not in _ROLES and role not in source and (hint := did_you_mean(role, _ROLES)):
            raise RequestError(f"messages[{number}].role: unknown role {role!r}{hint}")
