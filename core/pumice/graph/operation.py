"""Operations: a name, operands, attributes and a shape rule, written as one function.

The rule of an operation takes its operands, the parameters that are tensors, and its attributes, all others. It
checks them and returns the shape of the result. Its signature and docstring define the operation: the builder's method,
the names of a node's operands and attributes, and the lists of backends follow from it::

    @operation
    def silu(x: Tensor) -> Result:
        \"\"\"``x * sigmoid(x)``.\"\"\"
        return Result(x.shape)

An element-wise operation has a formula (formula.py), from which backends derive their kernels.

A composite operation also has an expansion into other operations. A backend that supports its name gets one node,
others get the expansion. It may have a separate expansion for prompts: steps in which every sequence begins.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, overload

from pumice.errors import ModelError
from pumice.graph.formula import Formula, named
from pumice.graph.shape import Shape
from pumice.graph.tensor import State, Tensor

P = ParamSpec("P")


@dataclass(frozen=True)
class Result:
    """The result of an operation.

    ``state``: the memory that it keeps; one without a name is new and belongs to the layer.
    """

    shape: Shape
    dtype: str = "f32"
    state: State | None = None


class Tracer(Protocol):
    """The part of a builder that operations use."""

    def trace(self, operation: Operation[P], *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Add a node of an operation and return its result."""


class Operation(Generic[P]):
    """An operation. As an attribute of a builder's class it is the method that adds a node."""

    def __init__(
        self,
        name: str,
        rule: Callable[P, Result],
        expand: Callable[..., Tensor] | None = None,
        formula: Callable[..., Formula] | None = None,
        expand_prompt: Callable[..., Tensor] | None = None,
    ) -> None:
        self.name = name
        self.rule = rule
        self.expand = expand
        self.expand_prompt = expand_prompt
        self.__doc__ = rule.__doc__
        self._signature = inspect.signature(rule)
        parameters = self._signature.parameters.values()
        self._by_position = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
        self._defaults = self.defaults
        hints = typing.get_type_hints(rule)
        self.operands = tuple(name for name in self._signature.parameters if _is_tensor(hints[name]))
        self.attributes = tuple(name for name in self._signature.parameters if name not in self.operands)
        self.formula = formula(*map(named, self._signature.parameters)) if formula else None

    @property
    def defaults(self) -> dict[str, Any]:
        """Default values of parameters by name."""
        parameters = self._signature.parameters.values()
        return {item.name: item.default for item in parameters if item.default is not item.empty}

    def bind(self, *args: Any, **kwargs: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return present operands and all attributes by name. Raises ModelError for a call that does not fit."""
        arguments = {**dict(zip(self._by_position, args, strict=False)), **kwargs}
        values = {**self._defaults, **arguments}
        if len(arguments) < len(args) + len(kwargs) or values.keys() != self._signature.parameters.keys():
            self._refuse(*args, **kwargs)
        operands = {name: values[name] for name in self.operands if values[name] is not None}
        return operands, {name: values[name] for name in self.attributes}

    def _refuse(self, *args: Any, **kwargs: Any) -> None:
        """Raise ModelError for a call that does not fit, with Python's message, which is slow to compute."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ModelError(f"operation {self.name}: {error}") from None

    @overload
    def __get__(self, builder: None, owner: type) -> Operation[P]: ...

    @overload
    def __get__(self, builder: Tracer, owner: type) -> Callable[P, Tensor]: ...

    def __get__(self, builder: Tracer | None, owner: type) -> Operation[P] | Callable[P, Tensor]:
        if builder is None:
            return self

        def add(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            return builder.trace(self, *args, **kwargs)

        return add

    def __call__(self, builder: Tracer, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Add a node to a builder's graph, for operations that are not attributes of its class."""
        return builder.trace(self, *args, **kwargs)


def operation(rule: Callable[P, Result]) -> Operation[P]:
    """Return the operation that a rule describes, with the rule's name."""
    return Operation(rule.__name__.rstrip("_"), rule)


def elementwise(formula: Callable[..., Formula]) -> Callable[[Callable[P, Result]], Operation[P]]:
    """Like ``operation``, for an operation that ``formula`` computes element by element.

    ``formula`` takes the rule's parameters, one or two operands and up to two attributes, as formulas.
    """
    return lambda rule: Operation(rule.__name__, rule, formula=formula)


def composite(
    name: str,
    expand: Callable[..., Tensor],
    formula: Callable[..., Formula] | None = None,
    prompt: Callable[..., Tensor] | None = None,
) -> Callable[[Callable[P, Result]], Operation[P]]:
    """Like ``operation``, for the operation ``name``, which ``expand`` composes of others.

    ``expand`` takes a builder and the rule's parameters, as does ``prompt``, the expansion for steps in which every
    sequence begins, with the same states in the same order. ``formula`` is set for element-wise operations, as in
    ``elementwise``. The name of a plugin's operation has a dot: ``vendor.name``.
    """
    return lambda rule: Operation(name, rule, expand, formula, prompt)


def _is_tensor(hint: Any) -> bool:
    """Return True if a parameter's type is a tensor, or optionally one."""
    kinds = typing.get_args(hint) or (hint,)
    return all(isinstance(kind, type) and issubclass(kind, (Tensor, type(None))) for kind in kinds)


def need(condition: bool, message: str) -> None:
    """Raise ModelError with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ModelError(message)


def check_broadcast(x: Tensor, *others: Tensor | None) -> None:
    """Raise ModelError unless the others broadcast to ``x``, over leading axes and axes where they have 1."""
    for y in others:
        if y is not None:
            pairs = zip(x.shape[::-1], y.shape[::-1], strict=False)
            if len(y.shape) > len(x.shape) or not all(b in (a, 1) for a, b in pairs):
                raise ModelError(f"{y} does not broadcast to {x}")
