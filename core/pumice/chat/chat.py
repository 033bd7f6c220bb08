"""The chat side of a model: which template and format it has, prompts from messages, and how its answers are read."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from pumice.chat.answer import Answer
from pumice.chat.families import GENERIC
from pumice.chat.form import answer_grammar
from pumice.chat.formats import ChatFormat, detect
from pumice.chat.guard import special_spellings, tokenize_marked
from pumice.chat.isolated import TemplateWorkers, template_workers
from pumice.chat.parser import ChatParser
from pumice.chat.prompt import PromptJob
from pumice.chat.request import ChatRequest
from pumice.chat.template import ChatTemplate, ChatTemplates
from pumice.errors import RequestError
from pumice.grammar import Budget, Grammar, GrammarChecker
from pumice.suggest import did_you_mean
from pumice.tokenizers import Tokenizer

logger = logging.getLogger("pumice")


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_KEPT = 16  # templates of a model that stay known


@dataclass(frozen=True)
class Prompt:
    """``text`` as the template wrote it, its ``tokens``, and ``opening``: what of the text begins the answer."""

    text: str
    tokens: list[int]
    opening: str


@dataclass(frozen=True)
class Turn:
    """A turn of the assistant that is to be generated.

    Attributes:
        request: what it is made from; ``format``: how the model writes reasoning and calls.
        grammar: what the answer has to look like; ``budget``: of its reasoning.
        special: the control tokens whose spelling is part of the answer's text, as marks of its format.
    """

    request: ChatRequest
    format: ChatFormat
    prompt: Prompt
    special: frozenset[int]
    grammar: Grammar | None
    budget: Budget | None

    def answer(self) -> Answer:
        request = self.request
        has_form = self.grammar is not None and not self.grammar.again
        parser = ChatParser(self.format, request.tools, self.prompt.opening, request.separate_reasoning, has_form)
        return Answer(parser, request.parallel_tool_calls)


@dataclass(frozen=True)
class _Known:
    """What is known of a template, and how it goes with the model: found once, never remembered where that failed."""

    template: ChatTemplate
    capabilities: Mapping[str, bool]
    format: ChatFormat
    special: frozenset[int]


class Chat:
    """Makes turns for one model. It runs nothing, and any thread may use it."""

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
        """``formats``: the known ones, by name; ``chat_template``: for requests that name none.

        ``checker`` compiles the grammars of answers before an engine does; None: in this process. ``n_ctx``: tokens
        of the context; a prompt that is far longer is refused before it is tokenized.
        """
        self._tokenizer = tokenizer
        self._n_ctx = n_ctx
        self._checker = checker or GrammarChecker()
        self._formats = formats
        self._templates = ChatTemplates(metadata, chat_template)
        self._workers = workers or template_workers()
        self._known: OrderedDict[str, _Known] = OrderedDict()  # by source, the last few

    def text(self, request: ChatRequest) -> str:
        """The prompt as text, without BOS if the tokenizer adds it. Raises as ``turn``."""
        text = self.turn(request).prompt.text
        bos = self._tokenizer.bos
        return text if bos is None or not self._tokenizer.add_bos else text.removeprefix(self._spelling(bos))

    def turn(self, request: ChatRequest, form: str | None = None) -> Turn:
        """``form``: what the answer has to look like, in llguidance's form.

        Raises RequestError if there is no template, if it refuses the messages, or if tool calls cannot be enforced;
        UnavailableError if nothing can be rendered now.
        """
        known = self._find(self._templates.source(request.chat_template, for_tools=bool(request.tools)))
        _check_roles(request.messages, known.template.source)
        if request.tools and not known.template.traits.has_tools:
            _warn_once(known.template.source)
        format, prompt = known.format, self._prompt(request, known)
        marks = {self._spelling(token): token for token in known.special}
        grammar = answer_grammar(request, format, prompt.opening, marks, form, self._checker)
        if grammar:
            self._checker.check(grammar.source, lambda: self._tokenizer)
        return Turn(request, format, prompt, known.special, grammar, self._budget(request, format, prompt.opening))

    def capabilities(self, chat_template: str | None = None) -> Mapping[str, bool]:
        """What the model's template, or the given one, can do; empty without one. Raises as ``turn``."""
        try:
            source = self._templates.source(chat_template)
        except RequestError:
            return {}
        return self._find(source).capabilities

    def _budget(self, request: ChatRequest, format: ChatFormat, opening: str) -> Budget | None:
        begin, end = format.reasoning
        if request.reasoning_budget is None or not end:
            return None
        closing = f"{request.reasoning_budget_message}\n{end}{format.after_reasoning}"
        tokens = self._tokenizer.tokenize_following(closing)
        return Budget(request.reasoning_budget, tokens, begin, end, reasons=format.reasons_after(opening))

    def _prompt(self, request: ChatRequest, known: _Known) -> Prompt:
        job = PromptJob(
            known.template,
            self._spellings,
            (*known.format.reasoning, known.format.after_reasoning),
            request.messages,
            request.tools,
            request.template_variables,
            request.reasoning,
            request.continues,
            request.add_generation_prompt,
        )
        written = self._workers.write(job)
        if self._n_ctx is not None:
            self._tokenizer.check_fits([written.text], self._n_ctx)
        tokens = tokenize_marked(self._tokenizer, written.text, written.mark)
        return Prompt(written.text.replace(written.mark, ""), tokens, written.opening)

    def _find(self, source: str) -> _Known:
        known = self._known.get(source)
        if known is None:
            bos, eos = (
                "" if token is None else self._spelling(token) for token in (self._tokenizer.bos, self._tokenizer.eos)
            )
            described = self._workers.describe(ChatTemplate(source, bos, eos))
            shown = described.format if described.format.is_sound else GENERIC
            format = detect(source, self._formats.values()) or shown
            known = _Known(described.template, described.capabilities, format, self._special(format))
            self._known[source] = known
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        return special_spellings(self._tokenizer)

    def _special(self, format: ChatFormat) -> frozenset[int]:
        hidden = self._tokenizer.vocabulary.hidden - self._tokenizer.eog
        return frozenset(token for token in hidden if any(self._spelling(token) in text for text in format.literals))

    def _spelling(self, token: int) -> str:
        return self._tokenizer.vocabulary.tokens[token]


@lru_cache(maxsize=64)
def _warn_once(source: str) -> None:
    """Of a template that gets tools and shows none."""
    logger.warning("the chat template does not show tools to the model: it will hardly call any")


def _check_roles(messages: Sequence[Mapping[str, Any]], source: str) -> None:
    """Raise RequestError for a role that looks like a mistyped one, and that the template does not name."""
    for number, message in enumerate(messages):
        role = message["role"]
        if role not in _ROLES and role not in source and (hint := did_you_mean(role, _ROLES)):
            raise RequestError(f"messages[{number}].role: unknown role {role!r}{hint}")
