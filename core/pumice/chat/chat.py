"""The chat side of a model: which template and format it has, prompts from messages, and how its answers are read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pumice.chat.answer import Answer
from pumice.chat.capabilities import capabilities
from pumice.chat.form import answer_grammar
from pumice.chat.formats import ChatFormat, detect
from pumice.chat.guard import Guard
from pumice.chat.isolated import Renderer
from pumice.chat.parser import ChatParser
from pumice.chat.probe import probe
from pumice.chat.prompt import Prompt, make_prompt
from pumice.chat.request import ChatRequest
from pumice.chat.template import ChatTemplate, ChatTemplates
from pumice.errors import RequestError
from pumice.grammar import Grammar
from pumice.tokenizers import Tokenizer

logger = logging.getLogger("pumice")


@dataclass(frozen=True)
class Turn:
    """A turn of the assistant that is to be generated.

    Attributes:
        request: what it is made from; ``format``: how the model writes reasoning and calls.
        grammar: what the answer has to look like.
        special: the control tokens whose spelling is part of the answer's text, as marks of its format.
        end_of_reasoning: what ends reasoning whose budget is spent, as text and as tokens.
    """

    request: ChatRequest
    format: ChatFormat
    prompt: Prompt
    special: frozenset[int]
    grammar: Grammar | None
    end_of_reasoning: tuple[str, list[int]]

    def grammar_after(self, prompt: Sequence[int]) -> Grammar | None:
        """The grammar of what follows ``prompt``: the turn's, or the turn's with its reasoning ended."""
        if self.grammar is None or len(prompt) == len(self.prompt.tokens):
            return self.grammar
        return replace(self.grammar, reasoning=("", ""), reasons=False)

    def answer(self) -> Answer:
        request = self.request
        parser = ChatParser(self.format, request.tools, self.prompt.opening, request.separate_reasoning)
        return Answer(parser, request.parallel_tool_calls)


class Chat:
    """Makes turns for one model. It runs nothing, and any thread may use it."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tokenizer: Tokenizer,
        formats: Mapping[str, ChatFormat],
        chat_template: str | None = None,
        renderer: Renderer | None = None,
    ) -> None:
        """``formats``: the known ones, by name; ``chat_template``: for requests that name none.

        ``renderer`` renders templates elsewhere; None: here.
        """
        self._tokenizer = tokenizer
        self._formats = formats
        self._templates = ChatTemplates(metadata, tokenizer, chat_template, renderer)
        self._known: dict[str, tuple[ChatFormat, Guard]] = {}
        self._warned: set[str] = set()  # templates of which it was said that they show no tools

    def text(self, request: ChatRequest) -> str:
        """The prompt as text, without BOS if the tokenizer adds it. Raises as ``turn``."""
        text = self.turn(request).prompt.text
        bos = self._tokenizer.bos
        return text if bos is None or not self._tokenizer.add_bos else text.removeprefix(self._spelling(bos))

    def turn(self, request: ChatRequest, form: str | None = None) -> Turn:
        """``form``: what the answer has to look like, in llguidance's form.

        Raises RequestError if there is no template, if it refuses the messages, or if tool calls cannot be enforced.
        """
        template = self._templates.get(request.chat_template, for_tools=bool(request.tools))
        if request.tools and not template.has_tools and template.source not in self._warned:
            self._warned.add(template.source)
            logger.warning("the chat template does not show tools to the model: it will hardly call any")
        format, guard = self._for(template)
        prompt = make_prompt(request, template, format, guard)
        closing = f"{request.reasoning_budget_message}\n{format.reasoning[1]}{format.after_reasoning}"
        closing_tokens = self._tokenizer.tokenize(closing, add_special=False)
        special = self._special(format)
        marks = {self._spelling(token): token for token in special}
        grammar = answer_grammar(request, format, prompt.opening, marks, form)
        return Turn(request, format, prompt, special, grammar, (closing, closing_tokens))

    @cached_property
    def capabilities(self) -> Mapping[str, bool]:
        """What the model's template can do; empty without one."""
        try:
            template = self._templates.get()
        except RequestError:
            return {}
        return capabilities(template)

    def _for(self, template: ChatTemplate) -> tuple[ChatFormat, Guard]:
        if template.source not in self._known:
            format = detect(template.source, self._formats.values()) or probe(template)
            self._known[template.source] = format, Guard(self._tokenizer, template.source)
        return self._known[template.source]

    def _special(self, format: ChatFormat) -> frozenset[int]:
        hidden = self._tokenizer.vocabulary.hidden - self._tokenizer.eog
        return frozenset(token for token in hidden if any(self._spelling(token) in text for text in format.literals))

    def _spelling(self, token: int) -> str:
        return self._tokenizer.vocabulary.tokens[token]
