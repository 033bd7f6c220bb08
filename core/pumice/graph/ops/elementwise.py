"""Element by element. A result has the shape of ``x``; a second operand broadcasts to it."""

from __future__ import annotations

from pumice.graph.operation import Result, check_broadcast, composite, need, operation
from pumice.graph.tensor import Tensor


def _like(x: Tensor) -> Result:
    return Result(x.shape)


def _broadcast(x: Tensor, y: Tensor) -> Result:
    check_broadcast(x, y)
    return Result(x.shape)


@operation
def add(x: Tensor, y: Tensor) -> Result:
    """``x + y``; ``y`` broadcasts over leading axes and over axes where it has 1."""
    return _broadcast(x, y)


@operation
def mul(x: Tensor, y: Tensor) -> Result:
    """``x * y``; ``y`` broadcasts as in ``add``."""
    return _broadcast(x, y)


@operation
def div(x: Tensor, y: Tensor) -> Result:
    """``x / y``; ``y`` broadcasts as in ``add``."""
    return _broadcast(x, y)


@operation
def scale(x: Tensor, factor: float, bias: float = 0.0) -> Result:
    """``x * factor + bias`` with constants."""
    return _like(x)


@operation
def clamp(x: Tensor, low: float, high: float) -> Result:
    """``min(max(x, low), high)`` with constants."""
    return _like(x)


@operation
def silu(x: Tensor) -> Result:
    """``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118)."""
    return _like(x)


@operation
def gelu(x: Tensor) -> Result:
    """``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`` (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    return _like(x)


@operation
def relu(x: Tensor) -> Result:
    """``max(x, 0)``."""
    return _like(x)


@operation
def sigmoid(x: Tensor) -> Result:
    """``1 / (1 + e^-x)``."""
    return _like(x)


@operation
def tanh(x: Tensor) -> Result:
    """The hyperbolic tangent."""
    return _like(x)


@operation
def softplus(x: Tensor) -> Result:
    """``ln(1 + e^x)``."""
    return _like(x)


@composite("silu_mul", lambda g, x, y: g.silu(x) * y)
def silu_mul(x: Tensor, y: Tensor) -> Result:
    """``silu(x) * y``: SwiGLU's gate (Shazeer 2020, arXiv:2002.05202)."""
    return _gate(x, y)


@composite("gelu_mul", lambda g, x, y: g.gelu(x) * y)
def gelu_mul(x: Tensor, y: Tensor) -> Result:
    """``gelu(x) * y``: GEGLU's gate (Shazeer 2020, arXiv:2002.05202)."""
    return _gate(x, y)


def _gate(x: Tensor, y: Tensor) -> Result:
    need(x.shape == y.shape, f"{y} cannot be gated by {x}: they must have one shape")
    return Result(x.shape)
