"""Formulas of element-wise operations, each written once: backends evaluate them on arrays, or translate them to
their kernel languages.

A formula uses ``+ - * /``, numbers, and the functions below. A backend defines each of FUNCTIONS::

    operation.formula.fold({"x": "a"}, str, {"add": "({} + {})".format, "exp": "exp({})".format, ...})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

FUNCTIONS = ("add", "sub", "mul", "div", "maximum", "minimum", "exp", "sqrt", "sin", "tanh", "softplus")


@dataclass(frozen=True)
class Formula:
    """``function`` applied to ``arguments``, or the name or number ``leaf``."""

    function: str = ""
    arguments: tuple[Formula, ...] = ()
    leaf: str | float = ""

    def fold(
        self, names: Mapping[str, T], number: Callable[[float], T], functions: Mapping[str, Callable[..., T]]
    ) -> T:
        """Evaluate the formula with values of names, a conversion of numbers, and implementations of functions."""
        if self.function:
            return functions[self.function](*(argument.fold(names, number, functions) for argument in self.arguments))
        return names[self.leaf] if isinstance(self.leaf, str) else number(self.leaf)

    def __add__(self, other: Formula | float) -> Formula:
        return _apply("add", self, other)

    def __radd__(self, other: float) -> Formula:
        return _apply("add", other, self)

    def __sub__(self, other: Formula | float) -> Formula:
        return _apply("sub", self, other)

    def __rsub__(self, other: float) -> Formula:
        return _apply("sub", other, self)

    def __mul__(self, other: Formula | float) -> Formula:
        return _apply("mul", self, other)

    def __rmul__(self, other: float) -> Formula:
        return _apply("mul", other, self)

    def __truediv__(self, other: Formula | float) -> Formula:
        return _apply("div", self, other)

    def __rtruediv__(self, other: float) -> Formula:
        return _apply("div", other, self)

    def __neg__(self) -> Formula:
        return 0.0 - self


def named(name: str) -> Formula:
    """Return the formula of an operand or attribute."""
    return Formula(leaf=name)


def maximum(a: Formula | float, b: Formula | float) -> Formula:
    return _apply("maximum", a, b)


def minimum(a: Formula | float, b: Formula | float) -> Formula:
    return _apply("minimum", a, b)


def exp(x: Formula) -> Formula:
    """``e^x``; infinity or the largest number on overflow."""
    return _apply("exp", x)


def sqrt(x: Formula) -> Formula:
    return _apply("sqrt", x)


def sin(x: Formula) -> Formula:
    """The sine, within 1e-6 for arguments up to 1,000."""
    return _apply("sin", x)


def tanh(x: Formula) -> Formula:
    """The hyperbolic tangent, accurate near zero, too."""
    return _apply("tanh", x)


def softplus(x: Formula) -> Formula:
    """``ln(1 + e^x)``, without overflow."""
    return _apply("softplus", x)


def _apply(function: str, *arguments: Formula | float) -> Formula:
    return Formula(
        function, tuple(item if isinstance(item, Formula) else Formula(leaf=float(item)) for item in arguments)
    )
