"""RWKV 7 (Peng et al. 2025, arXiv:2503.14456), and ARWKV 7 (Lin et al. 2025, arXiv:2501.15570), Qwen 2 with its mix."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear, width
from pumice.plugin.nn.recurrent import l2_norm
from pumice_architectures.rwkv import RWKV, TimeMixDecoder, low_rank, to_previous

SLOWEST = -0.606531  # lower bound of a decay's logarithm: -exp(-0.5)


class TimeMix7(TimeMixDecoder):
    may_lack_gate = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self._first_value: Tensor | None = None  # values of layer 0, which all layers mix in

    def build(self, g: GraphBuilder) -> Tensor | None:
        self._first_value = None
        return super().build(g)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        gated = not self.may_lack_gate or g.weight(f"{blk}time_mix_lerp_fused.weight").shape[0] == 6
        xr, xw, xk, xv, xa, *xg = self.mixed(g, x, blk, 6 if gated else 5)
        w = g.exp(g.sigmoid(self.learned(g, xw, blk, "w", "decay", g.tanh)) * SLOWEST)
        r, k = (linear(g, y, f"{blk}time_mix_{name}", self.n_embd) for y, name in ((xr, "receptance"), (xk, "key")))
        v = self.value(g, linear(g, xv, blk + "time_mix_value", self.n_embd), xv, blk)
        a = g.sigmoid(self.learned(g, xa, blk, "a", "iclr"))
        removed = l2_norm(g, self.of_heads(k * self.vector(g, blk, "k_k")), 1e-24)
        k = k + k * self.vector(g, blk, "k_a") * g.scale(a, 1.0, -1.0)
        r, w, k, v, a = (self.of_heads(y) for y in (r, w, k, v, a))
        y = g.linear_attention(r, k, v, w, a=removed * -1.0 / w, b=removed * a)
        bonus = self.vector(g, blk, "r_k")
        own = v * g.sum(self.of_heads(k.reshape(*x.shape) * r.reshape(*x.shape) * bonus), axis=-1, keepdims=True)
        y = self.normed(g, y, blk) + own.reshape(x.shape[0], self.n_embd)
        if gated:
            y = y * low_rank(g, xg[0], blk + "time_mix_g", self.rank("gate"), self.n_embd, g.sigmoid)
        return linear(g, y, blk + "time_mix_output", self.n_embd)

    def mixed(self, g: GraphBuilder, x: Tensor, blk: str, n: int) -> list[Tensor]:
        """Return the inputs, each blended with the previous token."""
        change, lerps = to_previous(g, x), g.weight(f"{blk}time_mix_lerp_fused.weight", (n, width(x)))
        return [change * lerps.rows(j, j + 1) + x for j in range(n)]

    def value(self, g: GraphBuilder, v: Tensor, xv: Tensor, blk: str) -> Tensor:
        """Blend the values with those of the first layer."""
        if self._first_value is None:
            self._first_value = v
            return v
        far = g.sigmoid(self.learned(g, xv, blk, "v", "value_residual_mix"))
        return v + (self._first_value + v * -1.0) * far

    def learned(self, g: GraphBuilder, x: Tensor, blk: str, letter: str, kind: str, between: Any = None) -> Tensor:
        """Return a low-rank function of ``x``, plus a vector."""
        name = f"{blk}time_mix_{letter}"
        return low_rank(g, x, name, self.rank(kind), self.n_embd, between) + g.weight(f"{name}0.weight", (self.n_embd,))

    def vector(self, g: GraphBuilder, blk: str, name: str) -> Tensor:
        return g.weight(f"{blk}time_mix_{name}.weight", (self.n_embd,))

    def rank(self, kind: str) -> int:
        return self.hparams.positive(f"attention.{kind}_lora_rank")


class RWKV7(TimeMix7, RWKV):
    pass


class ARWKV7(TimeMix7):
    may_lack_gate = True
    group_norm = None
