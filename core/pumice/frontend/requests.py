"""Requests, made of a prompt and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pumice.chat.mixed import MEDIA
from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.engine.requests.arguments import token_ids
from pumice.errors import RequestError
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.media import Media
from pumice.frontend.prompts import NO_PROMPT, Prompt, contains, mixed_parts, rows_and_texts
from pumice.grammar import Grammar, ReasoningBudget, grammar_source, read_triggers
from pumice.options import OUTPUT, REQUEST, SortedOptions, sort_options


class RequestMaker:
    """Makes the requests of a model. What it returns is checked, and goes to the engine as it is."""

    def __init__(self, engine: ModelEngine, media: Media) -> None:
        self._engine = engine
        self._media = media

    def __call__(self, prompt: Prompt | Request, options: Mapping[str, Any]) -> Request:
        """Return the request of a prompt; one that was made before is returned as it is.

        Raises:
            RequestError: An option is wrong, or this model does not generate text.
        """
        if isinstance(prompt, Request):
            if options:
                raise RequestError(f"{next(iter(options))}: the request has its options already; make it with this one")
            return prompt
        parts = sort_options(options)
        if parts.template:
            raise RequestError(f"{next(iter(parts.template))} is an option of chats: use chat or chat_stream")
        self._check_generates()
        ids, media = self.read(prompt, parts.request.get("cache_salt", ""))
        text = ""
        if parts.request.get("echo"):
            if media:
                raise RequestError("echo: a prompt with images or sound is no text that could be repeated")
            text = prompt if isinstance(prompt, str) else self._engine.tokenizer().detokenize(ids)
        if (suffix := parts.request.get("suffix")) is not None:
            if media or contains(prompt, str):
                raise RequestError("suffix: the prompt before it must be one text, or token ids")
            REQUEST["suffix"].check(suffix)
            tokenizer = self._engine.tokenizer()
            encode = partial(tokenizer.tokenize, add_special=False, parse_special=False)
            ids = tokenizer.fill_in(encode(prompt) if isinstance(prompt, str) else ids, encode(suffix))
        return self.of(ids, parts, self._grammar(parts.output), media=media, text=text)

    def with_grammar(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options whose form of the text is checked, for several requests. Raises RequestError."""
        rest = {name: value for name, value in options.items() if name not in OUTPUT}
        return {**rest, "grammar": self._grammar(sort_options(options).output)}

    def one(self, prompt: Prompt | Request, options: Mapping[str, Any]) -> Request:
        """Return a request for one completion. Raises RequestError also if it asks for several."""
        return check_single(self(prompt, options))

    def of(
        self,
        ids: Sequence[int],
        options: SortedOptions,
        grammar: Grammar | None,
        budget: ReasoningBudget | None = None,
        media: Sequence[Embeddings] = (),
        text: str = "",
    ) -> Request:
        """Return the request of token ids. Raises RequestError for a wrong option.

        ``text``: that of the prompt, for ``echo``.
        """
        self._check_generates()
        settings = {"max_tokens": REQUEST["max_tokens"].default, **options.request}
        return Request(
            ids,
            sampling=options.sampling,
            grammar=grammar,
            budget=budget,
            media=media,
            prompt_text=text,
            **settings,
        )

    def _check_generates(self) -> None:
        check_open(self._engine)
        if not self._engine.facts.generates:
            raise RequestError("this model does not generate text: it is an encoder, for embed, or drafts for others")

    def read(self, prompt: Prompt, salt: str) -> tuple[list[int], list[Embeddings]]:
        """Return the token ids of a prompt, with those of media left open, and its media."""
        if isinstance(prompt, str):
            return self._engine.tokenizer().tokenize(prompt), []
        if contains(prompt, np.ndarray):
            metadata = self._engine.file.metadata
            n_embd = int(metadata.get(f"{metadata['general.architecture']}.embedding_length", 0))
            return rows_and_texts(self._engine.tokenizer(), prompt, n_embd)
        if not contains(prompt, (str, *MEDIA)):
            return token_ids(prompt, NO_PROMPT), []
        return self._media.read(mixed_parts(prompt, NO_PROMPT), salt)

    def _grammar(self, output: Mapping[str, Any]) -> Grammar | None:
        """Return the grammar of the text, whichever option describes it."""
        if isinstance(grammar := output.get("grammar"), Grammar):
            return grammar
        forms = dict(output)
        triggers = forms.pop("grammar_triggers", None)
        source = grammar_source(**forms)
        begins = read_triggers(triggers, source)
        if source is None:
            return None
        self._engine.checker.check(source, self._engine.tokenizer)
        return Grammar(source, begins)


def check_single(request: Request) -> Request:
    """Return a request for one completion. Raises RequestError if it asks for several."""
    if request.n != 1:
        raise RequestError(f"n: a stream or chat has one completion, not {request.n}; generate gives several")
    return request
