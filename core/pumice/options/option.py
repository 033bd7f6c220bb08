"""One option: its type, bounds, default and meaning, the check of a value, and its line in a docstring."""

from __future__ import annotations

import inspect
import math
import operator
import re
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pumice.errors import RequestError
from pumice.machine import size_in
from pumice.wording import show_python

F = TypeVar("F", bound=Callable[..., object])

_NOUNS: dict[object, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    Sequence[str]: "a list of strings",
    list[str]: "a list of strings",
}
_COMPARE: Mapping[str, Callable[[Any, float], bool]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


@dataclass(frozen=True)
class Option:
    """One option, as ``Annotated`` metadata of its key in a ``TypedDict``; ``read_options`` fills in the last three.

    Attributes:
        default: Value that applies if neither the call nor the configuration gives one.
        spellings: Spellings on the command line with spaces between, llama.cpp's where it has the option.
        ge, gt, le, lt: Bounds of numbers.
        group: Heading under which ``--help`` and the documentation list the option.
        noun: What a value is, in errors; empty for the noun of the type.
        unit: Unit of a size's number, such as MiB; a text may have another unit. Empty for an option that is no size.
        rule: Function that raises ValueError with what a value should be, such as "a path", unless it is right.
        name: Key of the option.
        type: Type without metadata.
        meaning: One or two sentences: thing, unit, and what special values do.
    """

    default: object
    spellings: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    group: str = ""
    noun: str = ""
    unit: str = ""
    rule: Callable[[Any], object] | None = None
    name: str = ""
    type: Any = None
    meaning: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Spellings on the command line: the first one is shown in ``--help``, the others are hidden aliases."""
        return tuple(self.spellings.split())

    @cached_property
    def limits(self) -> Mapping[str, float]:
        """Bounds by their names: ``{"ge": 0, "le": 1}``."""
        return {key: value for key in _BOUNDS if (value := getattr(self, key)) is not None}

    @property
    def limits_text(self) -> str:
        """The bounds in words: ``"at least 0 and at most 1"``; empty without bounds."""
        return " and ".join(f"{_BOUNDS[key]} {value:.15g}" for key, value in self.limits.items())

    @property
    def type_text(self) -> str:
        """The type as users write it: ``"str | Sequence[str]"``."""
        return show_type(self.type)

    @cached_property
    def expected(self) -> str:
        """Description of a right value for errors: ``"an integer, at least 1"``."""
        noun = f"a number of {self.unit}, or a size such as 12GiB or 512MiB" if self.unit else self.noun
        noun = noun or describe_type(self.type)
        return f"{noun}, {self.limits_text}" if self.limits else noun

    def size(self, value: float | str) -> float:
        """Return a size in the option's unit, rounded down for an integer. Raises ConfigError for any other text."""
        size = size_in(value, self.unit)
        return math.floor(size) if isinstance(value, str) and float not in (self.type, *get_args(self.type)) else size

    def check(self, value: object) -> None:
        """Raise RequestError for a value of a wrong type or out of bounds."""
        if self.fits(1):
            check_size(self.name, value)
        if not self.fits(value) or (self.limits and not self.is_within(value)):
            raise RequestError(f"{self.name} must be {self.expected}, not {show_python(value)}")

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        """Function that is True for a value of the option's type, whatever its bounds."""
        return _make_test(self.type)

    def is_within(self, value: object) -> bool:
        """Return True unless a number is out of bounds."""
        if not isinstance(value, (int, float, Real)):
            return True
        return all(_COMPARE[key](value, limit) for key, limit in self.limits.items())


def read_parameter(name: str, hint: Any, noun: str = "") -> Option:
    """Return the option of a parameter.

    Args:
        name: Name of the parameter.
        hint: Its type, which may have bounds of ``annotated_types``, such as ``Ge(0)``, and a function as ``rule``.
        noun: What a value is, in errors.
    """
    metadata = getattr(hint, "__metadata__", ())
    limits = {key: value for bound in metadata for key in _BOUNDS if (value := getattr(bound, key, None)) is not None}
    rule = next(filter(inspect.isfunction, metadata), None)
    return Option(None, noun=noun, rule=rule, name=name, type=hint.__origin__ if metadata else hint, **limits)


def check_size(name: str, value: object) -> None:
    """Raise RequestError for an integer of more than 64 bits, which messages, programs and files cannot hold."""
    if isinstance(value, int) and not _is_64_bit(value):
        raise RequestError(f"{name} must be a number of at most 64 bits, not {show_python(value)}")


def read_options(definition: type, *parents: type) -> dict[str, Option]:
    """Return the options that a ``TypedDict`` declares or inherits from ``parents``, in its order.

    Their meanings are those in the section ``Attributes`` of the docstrings.
    """
    meanings = {name: text for declared in (definition, *parents) for name, text in _meanings(declared)}
    options: dict[str, Option] = {}
    for name, hint in get_type_hints(definition, include_extras=True).items():
        (option,) = hint.__metadata__
        options[name] = replace(option, name=name, type=hint.__origin__, meaning=meanings.get(name, ""))
    return options


def _meanings(definition: type) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the attributes in a docstring."""
    section = inspect.cleandoc(definition.__doc__ or "").partition("Attributes:\n")[2]
    for entry in re.finditer(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
        yield entry[1], " ".join(entry[2].split())


def show_type(hint: Any) -> str:
    """Return a type as users write it: ``"on" | "off"``, ``list[str]``."""
    if get_origin(hint) is Literal:
        return " | ".join(f'"{value}"' for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " | ".join(map(show_type, get_args(hint)))
    if get_origin(hint) is None:
        return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
    return f"{get_origin(hint).__name__}[{', '.join(map(show_type, get_args(hint)))}]"


def documented(options: Mapping[str, Option], **defaults: object) -> Callable[[F], F]:
    """Decorate a function whose keywords are ``options``: ``help`` and completion in notebooks show each of them.

    The docstring gets a section with every option; the signature lists them, but prints as it is written.

    Args:
        options: Options by name, as ``read_options`` returns them.
        defaults: Defaults that differ for this function.
    """

    shown = {name: defaults.get(name, option.default) for name, option in options.items()}
    section = "\n".join(["", "Keyword Args:", *(_document(option, shown[name]) for name, option in options.items())])
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown[name], annotation=option.type_text)
        for name, option in options.items()
    ]

    def decorate(function: F) -> F:
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n{section}"
        function.__signature__ = _Signature.expanded(inspect.signature(function), listed)  # type: ignore[attr-defined]
        return function

    return decorate


class _Signature(inspect.Signature):
    """A signature with a parameter for each option, which prints as the function is written."""

    __slots__ = ("_written",)
    _written: str

    @classmethod
    def expanded(cls, written: inspect.Signature, listed: Sequence[inspect.Parameter]) -> _Signature:
        named = [p for p in written.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        signature = cls([*named, *listed], return_annotation=written.return_annotation)
        signature._written = str(written)
        return signature

    def __str__(self) -> str:
        return self._written

    def format(self, **_: Any) -> str:
        return self._written


def _document(option: Option, default: object) -> str:
    """Return the entry of an option in a docstring."""
    text = f"{option.name} ({option.type_text}, default {default!r}): {option.meaning}"
    if option.limits:
        text += f" Must be {option.limits_text}."
    return textwrap.fill(text, 110, initial_indent="    ", subsequent_indent=" " * 8, break_long_words=False)


def describe_type(hint: Any) -> str:
    """Return the noun of a type for an error."""
    if hint in _NOUNS:
        return _NOUNS[hint]
    if get_origin(hint) is Annotated:
        return read_parameter("", hint).expected
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return f"a list of {len(get_args(hint))} values"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(str(member.value) for member in hint)}"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe_type(part) for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is None or not issubclass(get_origin(hint), Collection):
        return show_type(hint)
    return "a mapping" if issubclass(get_origin(hint), Mapping) else f"a list of {show_type(get_args(hint)[0])}"


def _make_test(hint: Any) -> Callable[[Any], bool]:
    """Return a function that is True for values of a type; NumPy's numbers are numbers, booleans and NaN are not."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hint is Any:
        return lambda value: True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return lambda value: isinstance(value, hint)
    if origin is Literal:
        return lambda value: any(type(value) is type(choice) and value == choice for choice in arguments)
    is_union = origin in (Union, types.UnionType)
    if not is_union and not issubclass(origin, Collection):
        return lambda value: isinstance(value, origin)
    tests = [_make_test(part) for part in arguments]
    if is_union:
        return lambda value: any(test(value) for test in tests)
    if issubclass(origin, Mapping):
        of_key, of_value = tests
        return lambda value: isinstance(value, Mapping) and all(of_key(k) and of_value(v) for k, v in value.items())
    classes = (Sequence, Set) if origin is Collection else (Sequence,)
    return lambda value: (
        isinstance(value, classes) and not isinstance(value, (str, bytes, bytearray)) and all(map(tests[0], value))
    )


def _is_64_bit(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 64


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, Integral)) and not isinstance(value, bool) and _is_64_bit(int(value))


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and _is_64_bit(value)
    return isinstance(value, (float, Real)) and value == value


_SCALARS: Mapping[object, Callable[[Any], bool]] = {int: _is_integer, float: _is_number}
