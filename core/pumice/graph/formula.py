"""Formulas of operations element by element, each written once: backends compute them with arrays or vectors, or write
them in the language of their kernels.

A formula uses ``+ - * /``, numbers, and the functions below. A backend says what each of FUNCTIONS is to it::

    operation.formula.fold({"x": "a"}, str, {"add": "({} + {})".format, "exp": "exp({})".format, ...})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

FUNCTIONS = ("add", "sub", "mul", "div", "maximum", "minimum", "exp", "sqrt", "tanh", "softplus")


@dataclass(frozen=True)
class Formula:
    """``function`` of ``arguments``; or what goes by the name, or the number, that ``leaf`` is."""

    function: str = ""
    arguments: tuple[Formula, ...] = ()
    leaf: str | float = ""

    def fold(
        self, names: Mapping[str, T], number: Callable[[float], T], functions: Mapping[str, Callable[..., T]]
    ) -> T:
        """The value, for values of names, a value of each number, and what computes a function of values."""
        if self.function:
            return functions[self.function](*(each.fold(names, number, functions) for each in self.arguments))
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
    """An operand or an attribute."""
    return Formula(leaf=name)


def maximum(a: Formula | float, b: Formula | float) -> Formula:
    return _apply("maximum", a, b)


def minimum(a: Formula | float, b: Formula | float) -> Formula:
    return _apply("minimum", a, b)


def exp(x: Formula) -> Formula:
    """``e^x``; where it is too large for float32, infinity or the largest number."""
    return _apply("exp", x)


def sqrt(x: Formula) -> Formula:
    return _apply("sqrt", x)


def tanh(x: Formula) -> Formula:
    """The hyperbolic tangent, to all digits near zero too."""
    return _apply("tanh", x)


def softplus(x: Formula) -> Formula:
    """``ln(1 + e^x)``, without overflow."""
    return _apply("softplus", x)


def _apply(function: str, *arguments: Formula | float) -> Formula:
    return Formula(
        function, tuple(each if isinstance(each, Formula) else Formula(leaf=float(each)) for each in arguments)
    )
