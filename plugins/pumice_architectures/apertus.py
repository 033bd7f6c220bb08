"""Apertus (Swiss AI 2025, arXiv:2509.14233)."""

from __future__ import annotations

import math

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import Decoder

EPS = -1e-5, 0.0  # bounds of ``eps``, the size of a step of ``xielu`` at 0


class Apertus(Decoder):
    """Queries and keys are normalized; feed-forward blocks have no gate, and xIELU has parameters per layer."""

    qk_norm = "before rope"

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        alpha_n, alpha_p, beta = (self.parameter(name, i) for name in ("alpha_n", "alpha_p", "beta"))
        eps = self.parameter("eps", i, *EPS)
        alpha_n, alpha_p = beta + softplus(alpha_n), softplus(alpha_p)
        return feed_forward(g, x, blk, self.n_ff(i), lambda y: xielu(g, y, alpha_n, alpha_p, beta, eps))

    def parameter(self, name: str, i: int, low: float = -1e6, high: float = 1e6) -> float:
        """Return a hyperparameter of a layer; these keys have no architecture prefix."""
        hparams = HParams({**self.hparams.metadata, "general.architecture": "xielu"})
        value = hparams.per_layer(name, i + 1)[i]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise hparams.wrong(name, f"is {value!r} for layer {i}, expected a number from {low:g} to {high:g}")
        return float(value)


def softplus(x: float) -> float:
    return x if x > 20 else math.log1p(math.exp(x))


def xielu(g: GraphBuilder, x: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """``alpha_p x^2 + beta x`` above 0, else ``alpha_n (e^min(x, eps) - 1 - x) + beta x`` (arXiv:2411.13010)."""
    below = g.clamp(x, -math.inf, 0.0)
    curve = g.scale(g.exp(g.clamp(below, -math.inf, eps)), 1.0, -1.0) + below * -1.0
    return g.relu_squared(x) * alpha_p + curve * alpha_n + x * beta
