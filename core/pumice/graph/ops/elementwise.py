"""Element-wise operations. A result has the shape of ``x``; a second operand broadcasts to it.

Each has a formula of its operands and attributes, in order, from which backends derive their kernels.
"""

from __future__ import annotations

from pumice.graph import formula
from pumice.graph.formula import Formula, maximum, minimum
from pumice.graph.operation import Result, check_broadcast, composite, elementwise, need
from pumice.graph.tensor import Tensor


def _like(x: Tensor) -> Result:
    return Result(x.shape)


def _broadcast(x: Tensor, y: Tensor) -> Result:
    check_broadcast(x, y)
    return Result(x.shape)


@elementwise(lambda x, y: x + y)
def add(x: Tensor, y: Tensor) -> Result:
    """``x + y``; ``y`` broadcasts over leading axes and over axes where it has 1."""
    return _broadcast(x, y)


@elementwise(lambda x, y: x * y)
def mul(x: Tensor, y: Tensor) -> Result:
    """``x * y``; ``y`` broadcasts as in ``add``."""
    return _broadcast(x, y)


@elementwise(lambda x, y: x / y)
def div(x: Tensor, y: Tensor) -> Result:
    """``x / y``; ``y`` broadcasts as in ``add``."""
    return _broadcast(x, y)


@elementwise(lambda x, factor, bias: x * factor + bias)
def scale(x: Tensor, factor: float, bias: float = 0.0) -> Result:
    """``x * factor + bias`` with constants."""
    return _like(x)


@elementwise(lambda x, low, high: minimum(maximum(x, low), high))
def clamp(x: Tensor, low: float, high: float) -> Result:
    """``min(max(x, low), high)`` with constants."""
    return _like(x)


def _silu(x: Formula) -> Formula:
    return x / (1 + formula.exp(-x))


def _gelu(x: Formula) -> Formula:
    """``(1 + tanh(u)) / 2`` is the sigmoid of ``2 u``; u = sqrt(2/pi) (x + 0.044715 x^3)."""
    return x / (1 + formula.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


def _gelu_erf(x: Formula) -> Formula:
    """``x/2 * (1 + erf(x / sqrt(2)))``; erf of Abramowitz and Stegun (1964), formula 7.1.26, is within 1.5e-7."""
    size = maximum(x, -x)
    t = 1 / (1 + 0.3275911 * 2**-0.5 * size)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return maximum(x, 0) - 0.5 * size * series * formula.exp(-0.5 * x * x)


@elementwise(_silu)
def silu(x: Tensor) -> Result:
    """``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118)."""
    return _like(x)


@elementwise(_gelu)
def gelu(x: Tensor) -> Result:
    """``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`` (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    return _like(x)


@elementwise(_gelu_erf)
def gelu_erf(x: Tensor) -> Result:
    """``x/2 * (1 + erf(x / sqrt(2)))``, GELU without approximation (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    return _like(x)


@elementwise(lambda x: maximum(x, 0))
def relu(x: Tensor) -> Result:
    """``max(x, 0)``."""
    return _like(x)


@elementwise(lambda x: 1 / (1 + formula.exp(-x)))
def sigmoid(x: Tensor) -> Result:
    """``1 / (1 + e^-x)``."""
    return _like(x)


@elementwise(formula.tanh)
def tanh(x: Tensor) -> Result:
    """The hyperbolic tangent."""
    return _like(x)


@elementwise(formula.softplus)
def softplus(x: Tensor) -> Result:
    """``ln(1 + e^x)``."""
    return _like(x)


@elementwise(lambda x: maximum(x, 0) * maximum(x, 0))
def relu_squared(x: Tensor) -> Result:
    """``max(x, 0)^2`` (So et al. 2021, arXiv:2109.08668)."""
    return _like(x)


@elementwise(formula.exp)
def exp(x: Tensor) -> Result:
    """``e^x``."""
    return _like(x)


@elementwise(formula.sqrt)
def sqrt(x: Tensor) -> Result:
    """The square root."""
    return _like(x)


@elementwise(formula.sin)
def sin(x: Tensor) -> Result:
    """The sine of an angle in radians."""
    return _like(x)


@composite("silu_mul", lambda g, x, y: g.silu(x) * y, lambda x, y: _silu(x) * y)
def silu_mul(x: Tensor, y: Tensor) -> Result:
    """``silu(x) * y``: SwiGLU's gate (Shazeer 2020, arXiv:2002.05202)."""
    return _gate(x, y)


@composite("gelu_mul", lambda g, x, y: g.gelu(x) * y, lambda x, y: _gelu(x) * y)
def gelu_mul(x: Tensor, y: Tensor) -> Result:
    """``gelu(x) * y``: GEGLU's gate (Shazeer 2020, arXiv:2002.05202)."""
    return _gate(x, y)


def _gate(x: Tensor, y: Tensor) -> Result:
    need(x.shape == y.shape, f"{y} cannot be gated by {x}: they must have one shape")
    return Result(x.shape)
