"""Bounds of what a request may choose.

``FIELDS`` has every field of a JSON body that an endpoint reads: ``Body`` shows no field without a bound. The table in
docs/request_limits.md is made of it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# --- of every request

MAX_BODY = 32 << 20  # bytes
MAX_DEPTH = 64  # brackets within brackets
MAX_VALUES = 1 << 21  # commas and opening brackets of a body: at least as many as its values
MAX_BRACKETS = 1 << 18  # opening brackets of a body: at least as many as its lists and objects, which cost most
MAX_ARRIVING = 256 << 20  # bytes of all bodies that arrive at once; beyond, the answer is 503
SMALL_BODY = 64 << 10  # bytes of a body that always has room
BODY_SECONDS = 60.0  # for a body to arrive
HEADER_SECONDS = 15.0  # for the headers of a request to arrive, once it or its connection began
MAX_HEADERS = 64 << 10  # bytes
STALL_SECONDS = 60.0  # in which a client has to take a part of its answer
IDLE_SECONDS = 75  # of a connection, longer than clients and proxies keep theirs: whoever ends it knows that it ended
MAX_CONNECTIONS = 1000  # at once; beyond, the answer is 503
MAX_KEPT = 64 << 20  # bytes of kept responses, the oldest forgotten first

MAX_SAID = 4 << 20  # characters of a conversation's or a message's object, where the server keeps them

# --- of fields, and of what is in them

MAX_MESSAGES = 10_000
MAX_SCALES = 1024  # adapters
MAX_TOOLS = 1024
MAX_PROMPTS = 128
MAX_TEXTS = 2048  # to embed or to rank
MAX_IDS = 1 << 20  # tokens of a prompt, whatever the context
MAX_N = 16  # completions of one prompt
MAX_LOGPROBS = 20  # likeliest tokens that are told for each
MAX_PROBS = 100  # the same, for llama-server's completions
MAX_BIAS = 1e30  # what is added to a logit, up and down
MAX_BIAS_LENGTH = 256  # characters of a text that stands for tokens
MAX_SPELT = 2 << 20  # bytes of a text whose tokens are told: each may be one


def shown(value: Any) -> str:
    """A value in a message, cut."""
    return reprlib.repr(value)[:60]


@dataclass(frozen=True)
class Switch:
    """True or false."""

    noun = "true or false"
    types = (bool,)

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value of this type, if something is."""
        return None

    def __str__(self) -> str:
        return "switch"


@dataclass(frozen=True)
class Number:
    """A number between two, both included."""

    least: float
    most: float
    noun = "a number"
    types: tuple[type, ...] = (int, float)

    def problem(self, value: Any) -> str | None:
        if self.least <= value <= self.most:
            return None
        return f"Value must be between {_told(self.least)} <= value <= {_told(self.most)}, but got {shown(value)}"

    def __str__(self) -> str:
        return f"{_told(self.least)} to {_told(self.most)}"


@dataclass(frozen=True)
class Whole(Number):
    """An integer between two, both included."""

    noun = "an integer"
    types: tuple[type, ...] = (int,)


@dataclass(frozen=True)
class Text:
    """A text of so many characters."""

    most: int
    noun = "text"
    types = (str,)

    def problem(self, value: Any) -> str | None:
        return None if len(value) <= self.most else f"at most {self.most} characters, not {len(value)}: {shown(value)}"

    def __str__(self) -> str:
        return "text" if self.most == MAX_BODY else f"{_told(self.most)} characters"


@dataclass(frozen=True)
class Items:
    """A list of so many items; ``each``: what an item may be, if that is not left to the endpoint."""

    most: int
    each: Sequence[Kind] = ()
    noun = "a list"
    types = (list,)

    def problem(self, value: Any) -> str | None:
        if len(value) > self.most:
            return f"at most {self.most} items, not {len(value)}"
        wrong = (check(f"item {i}", item, self.each) for i, item in enumerate(value)) if self.each else ()
        return next(filter(None, wrong), None)

    def __str__(self) -> str:
        each = f" of {' or '.join(map(str, self.each))}" if self.each else ""
        return f"{_told(self.most)} items{each}"


@dataclass(frozen=True)
class Object:
    """An object of so many keys; ``fields``: what is under some of them."""

    most: int
    fields: Mapping[str, Sequence[Kind]] = field(default_factory=dict)
    noun = "an object"
    types = (dict,)

    def problem(self, value: Any) -> str | None:
        if len(value) > self.most:
            return f"at most {self.most} keys, not {len(value)}"
        known = ((name, value[name]) for name in self.fields if value.get(name) is not None)
        return next(filter(None, (check(name, item, self.fields[name]) for name, item in known)), None)

    def __str__(self) -> str:
        inside = ", ".join(f"`{name}`: {' or '.join(map(str, kinds))}" for name, kinds in self.fields.items())
        return f"{_told(self.most)} keys" + (f" ({inside})" if inside else "")


@dataclass(frozen=True)
class Anything:
    """Of a field that is refused with its reason, whatever it holds."""

    noun = "anything"
    types = (object,)

    def problem(self, value: Any) -> str | None:
        return None

    def __str__(self) -> str:
        return "refused, unless it is empty"


Kind = Switch | Number | Text | Items | Object | Anything


def check(name: str, value: Any, kinds: Sequence[Kind]) -> str | None:
    """What is wrong with the value of a field that may be one of ``kinds``; None if nothing is."""
    for kind in kinds:
        if isinstance(value, kind.types) and (not isinstance(value, bool) or not isinstance(kind, Number)):
            problem = kind.problem(value)
            if problem is None:
                return None
            return f"Field '{name}': {problem}" if isinstance(kind, Number) else f"{name}: {problem}"
    return f"{name} must be {' or '.join(kind.noun for kind in kinds)}, not {shown(value)}"


_INT = 2**31 - 1
_SWITCH = (Switch(),)
_REAL = (Number(-1e6, 1e6),)
_POSITIVE = (Number(0, 1e6),)
_PROBABILITY = (Number(0, 1),)
_COUNT = (Whole(-1, _INT),)
_NATURAL = (Whole(0, _INT),)
_TEXT = (Text(MAX_BODY),)
_WORD = (Text(64),)
_NAME = (Text(1024),)
_OBJECT = (Object(1024),)
_FORM = (Text(1 << 20),)
_SCHEMA = (Switch(), Object(1 << 16), *_FORM)
_CHOICES = (Items(1024, (Text(1 << 16),)),)
_BUDGET = (Whole(-1, _INT),)
_PROMPT = (*_TEXT, Items(MAX_IDS), *_OBJECT)
_TEXTS = (Items(MAX_TEXTS, _TEXT),)
_STOPS = Items(16, (Text(256),))
_ANYTHING = (Anything(),)
_FORMS = {"json": _SCHEMA, "grammar": _FORM, "regex": (Text(1 << 16),), "choice": _CHOICES}  # by vLLM's names

_GENERATION: dict[str, Sequence[Kind]] = {
    "model": _NAME,
    "stream": _SWITCH,
    "stream_options": _OBJECT,
    "timings_per_token": _SWITCH,
    "return_progress": _SWITCH,
    "verbose": _SWITCH,
    "cache_prompt": _SWITCH,
    "n": (Whole(1, MAX_N),),
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "n_predict": _COUNT,
    "t_max_predict_ms": (Whole(-1, 24 * 3600 * 1000),),
    "priority": (Whole(-(2**31), 2**31),),
    "stop": (Text(256), _STOPS),
    "stop_token_ids": (Items(1024, _NATURAL),),
    "logit_bias": (Object(1024), Items(1024)),
    "logprobs": (Switch(), Whole(0, MAX_LOGPROBS)),
    "top_logprobs": (Whole(0, MAX_LOGPROBS),),
    "n_probs": (Whole(0, MAX_PROBS),),
    "lora": (Items(MAX_SCALES),),
    "grammar": _FORM,
    "json_schema": _SCHEMA,
    "regex": (Text(1 << 16),),
    "choices": _CHOICES,
    "json_whitespace": _SWITCH,
    "structured_outputs": (Object(64, _FORMS),),
    **{f"guided_{name}": kinds for name, kinds in _FORMS.items()},
    "grammar_lazy": _ANYTHING,
    "grammar_triggers": _ANYTHING,
    "min_tokens": _ANYTHING,
    "adaptive_target": _REAL,
}
_SAMPLING: dict[str, Sequence[Kind]] = {
    "samplers": (Text(32), Items(32, _WORD)),
    "temperature": _REAL,
    "dynatemp_range": _POSITIVE,
    "dynatemp_exponent": _POSITIVE,
    "top_k": _COUNT,
    "top_p": _PROBABILITY,
    "min_p": _PROBABILITY,
    "top_n_sigma": _REAL,
    "typical_p": _PROBABILITY,
    "xtc_probability": _PROBABILITY,
    "xtc_threshold": _PROBABILITY,
    "min_keep": _NATURAL,
    "repeat_penalty": (Number(1e-6, 1e6),),
    "repetition_penalty": (Number(1e-6, 1e6),),
    "repeat_last_n": _COUNT,
    "presence_penalty": _REAL,
    "frequency_penalty": _REAL,
    "dry_multiplier": _POSITIVE,
    "dry_base": (Number(1, 1e6),),
    "dry_allowed_length": _NATURAL,
    "dry_penalty_last_n": _COUNT,
    "dry_sequence_breakers": (Items(64, (Text(40),)),),
    "mirostat": (Whole(0, 2),),
    "mirostat_tau": _POSITIVE,
    "mirostat_eta": _POSITIVE,
    "seed": (Whole(-1, 2**64 - 1),),
    "rng": _WORD,
    "ignore_eos": _SWITCH,
}
_CHATS: dict[str, Sequence[Kind]] = {
    "messages": (Items(MAX_MESSAGES),),
    "tools": (Items(MAX_TOOLS),),
    "tool_choice": (*_NAME, *_OBJECT),
    "parallel_tool_calls": _SWITCH,
    "response_format": _OBJECT,
    "reasoning_effort": _WORD,
    "reasoning_format": _WORD,
    "reasoning_budget_tokens": _BUDGET,
    "thinking_budget_tokens": _BUDGET,
    "reasoning_budget_message": (Text(4096),),
    "enable_thinking": _SWITCH,
    "chat_template_kwargs": _OBJECT,
    "continue_final_message": _SWITCH,
    "add_generation_prompt": _SWITCH,
    # responses
    "input": _PROMPT,
    "instructions": _TEXT,
    "previous_response_id": _NAME,
    "store": _SWITCH,
    "max_output_tokens": _COUNT,
    "text": (*_TEXT, *_OBJECT),
    "reasoning": (Object(64, {"effort": _WORD}),),
    "metadata": (Object(64),),
    "user": _NAME,
    "background": _ANYTHING,
    "conversation": _ANYTHING,
    # Anthropic's messages
    "system": (*_TEXT, Items(MAX_MESSAGES)),
    "thinking": (Object(64, {"type": _WORD, "budget_tokens": _BUDGET}),),
    "output_config": (Object(64, {"effort": _WORD}),),
    "output_format": _OBJECT,
    "stop_sequences": (_STOPS,),
}
_COMPLETIONS: dict[str, Sequence[Kind]] = {
    "prompt": _PROMPT,
    "suffix": _TEXT,
    "echo": _SWITCH,
    "best_of": (Whole(1, MAX_N),),
    "prompt_logprobs": (Whole(0, MAX_LOGPROBS),),
    "n_cmpl": (Whole(1, MAX_N),),
    "post_sampling_probs": _SWITCH,
    "return_tokens": _SWITCH,
    "response_fields": (Items(100, _NAME),),
    "sse_ping_interval": (Whole(-1, 3600),),
    "id_slot": (Whole(-1, MAX_IDS),),
    "n_discard": (Whole(0, MAX_IDS),),
    "n_keep": (Whole(-1, MAX_IDS),),
    "n_indent": (Whole(0, MAX_IDS),),
    "n_cache_reuse": (Whole(0, MAX_IDS),),
    "input_prefix": (*_TEXT, Items(MAX_IDS)),
    "input_suffix": (*_TEXT, Items(MAX_IDS)),
    "input_extra": (Items(256),),
    "image_data": _ANYTHING,
}
_OTHERS: dict[str, Sequence[Kind]] = {
    "options": (Object(256),),
    "num_predict": (Whole(-2, _INT),),
    "format": (*_FORM, Object(1 << 16)),
    "think": (*_SWITCH, *_WORD),
    "raw": _SWITCH,
    "keep_alive": (Number(-1e9, 1e9), *_WORD),
    "images": _ANYTHING,
    "template": _ANYTHING,
    "context": _ANYTHING,
    "name": _NAME,
    "content": _PROMPT,
    "tokens": (Items(MAX_IDS),),
    "add_special": _SWITCH,
    "parse_special": _SWITCH,
    "with_pieces": _SWITCH,
    "encoding_format": _WORD,
    "dimensions": (Whole(1, MAX_IDS),),
    "embd_normalize": (Whole(-1, 1000),),
    "truncate": _SWITCH,
    "query": _TEXT,
    "texts": _TEXTS,
    "documents": _TEXTS,
    "top_n": (Whole(0, MAX_IDS),),
    "return_text": _SWITCH,
    "filename": _NAME,
    "instances": (Items(MAX_PROMPTS),),
}
FIELDS: dict[str, Sequence[Kind]] = {**_GENERATION, **_SAMPLING, **_CHATS, **_COMPLETIONS, **_OTHERS}
"""What each field of a body may be, in every protocol that has it. An endpoint may ask for less."""

SCALE: dict[str, Sequence[Kind]] = {"id": (Whole(0, MAX_IDS),), "scale": _REAL}
"""The fields of an entry of ``lora``."""


def integers(kinds: Sequence[Kind]) -> Whole:
    """The bounds of a field that may be an integer."""
    return next(kind for kind in kinds if isinstance(kind, Whole))


def table() -> str:
    """The fields and their bounds, as Markdown: those that are alike in a row."""
    rows: dict[str, list[str]] = {}
    for name, kinds in FIELDS.items():
        if kinds != _SWITCH:
            rows.setdefault(" or ".join(map(str, kinds)), []).append(f"`{name}`")
    lines = ["| fields | bound |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {', '.join(names)} | {bound} |" for bound, names in rows.items())])


def _told(number: float) -> str:
    """A number as it is read best: powers of two that are round, others as they are."""
    return f"{number:g}" if isinstance(number, float) else f"{number}"
