"""An operation of the plugin's own: for any backend what it is composed of, for its own backend one pass."""

from pumice.plugin import GraphBuilder, Result, Tensor, composite


def composed(g: GraphBuilder, gate: Tensor, up: Tensor) -> Tensor:
    return g.silu(gate) * up


@composite("example.swiglu", composed)
def swiglu(gate: Tensor, up: Tensor) -> Result:
    """``silu(gate) * up``: both ``[..., n]``."""
    return Result(gate.shape)
