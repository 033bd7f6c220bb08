"""Render chat templates by Jinja2, in the environment of transformers.

The environment follows ``transformers.utils.chat_template_utils``: trimmed blocks, loop controls, ``generation``,
``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``. Unlike that of transformers it lets a template
change lists and dictionaries, of which it gets copies, since published templates do.

Jinja2's sandbox keeps templates from Python's internals, and nothing here bounds time and memory: compile and render
templates in worker processes only, which are confined (``pumice.chat.isolated``).
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace

from pumice.errors import ModelError, RequestError
from pumice.wording import printable

MAX_SOURCE = 1 << 20  # characters of a template
MAX_OUTPUT = 1 << 26  # characters of a rendered prompt


class JinjaTemplate:
    """A compiled template. Raises ModelError if the source is not valid Jinja."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_SOURCE:
            raise ModelError(f"the chat template has {len(source)} characters, but the limit is {MAX_SOURCE}")
        self.source = source
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            reason = f"line {error.lineno}: {_in_a_line(error.message)}"
            raise ModelError(f"the chat template is not valid Jinja: {reason}") from None
        except RecursionError:
            raise ModelError("the chat template is not valid Jinja: it is nested too deeply") from None
        except (SyntaxError, ValueError) as error:  # of Python's compiler, whose lines are not those of the template
            reason = _in_a_line(getattr(error, "msg", error))
            raise ModelError(f"the chat template is not valid Jinja: {reason}") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """Return the text for a context of plain values. Raises RequestError if the template refuses or fails."""
        try:
            return _joined(self._template.generate(_copy(context)))
        except (MemoryError, RequestError):
            raise
        except _Refused as refusal:
            raise RequestError(f"the chat template refuses these messages: {_in_a_line(refusal)}") from None
        except TemplateError as error:
            raise RequestError(f"the chat template fails{_position(error)}: {_in_a_line(error)}") from None
        except Exception as error:  # of an operator, a filter or a method
            cause = f"{type(error).__name__}: {error}"
            raise RequestError(f"the chat template fails{_position(error)}: {_in_a_line(cause)}") from None


@lru_cache(maxsize=8)
def compiled(source: str) -> JinjaTemplate:
    """Return the compiled template of a source, cached. Call it in workers only."""
    return JinjaTemplate(source)


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class _Refused(Exception):
    """Raised by a template through ``raise_exception``."""


class _Generation(Extension):
    """``{% generation %}``, which selects text for training, as a block without effect."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Dict:
    """``dict`` for templates, which must not get a class of Python."""

    def __call__(self, *values: Any, **items: Any) -> dict[Any, Any]:
        return dict(*values, **items)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """``namespace`` without private attributes, such as ``__class__``, which would hide what the object is."""

    def __init__(*values: Any, **items: Any) -> None:  # a template may name an attribute self
        self, *rest = values
        attributes = dict(*rest, **items)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"an attribute of a namespace must not begin with an underscore: {name}")


def _copy(value: Any) -> Any:
    """Copy lists and dictionaries, so that a template changes its own."""
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value


def _joined(pieces: Iterable[str]) -> str:
    written, length = [], 0
    for piece in pieces:
        written.append(piece)
        length += len(piece)
        if length > MAX_OUTPUT:
            raise RequestError(f"the chat template writes more than {MAX_OUTPUT} characters")
    return "".join(written)


def _position(error: Exception) -> str:
    """Return the line of the template at which an error was raised."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "<template>"]
    return f" in line {lines[-1]}" if lines else ""


def _in_a_line(text: object) -> str:
    return printable(" ".join(str(text).split()))


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)  # noqa: TID251 (strftime_now of templates)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
