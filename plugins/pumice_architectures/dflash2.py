"""DFlash 2: convolutions over a block, and transition scores between the candidates of adjacent positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import Activation, linear, width
from pumice.plugin.nn.places import neighbour, places


def has_selector(g: GraphBuilder, hparams: HParams) -> bool:
    return hparams.get_int("selector_top_k", 0) > 0 or g.find_weight("selector_hidden.weight") is not None


@dataclass(frozen=True)
class Convolutions:
    """Two causal convolutions around a block; the block's input modifies the file's weights."""

    n_taps: int
    n_group: int  # groups of channels whose weights get the same change

    def around(self, g: GraphBuilder, x: Tensor, block: Activation, name: str) -> Tensor:
        """Apply ``block`` between the convolutions named ``name``."""
        n = self.n_taps * self.n_group
        g.weight(f"{name}_base", (2, self.n_taps, width(x)))
        both = linear(g, x, f"{name}_proj", 2 * n)
        before, after = (g.slice(both, start, start + n) for start in (0, n))
        return self._convolved(g, block(self._convolved(g, x, before, name, 0)), after, name, 1)

    def _convolved(self, g: GraphBuilder, x: Tensor, more: Tensor, name: str, side: int) -> Tensor:
        n = width(x)
        rows = self.n_taps * self.n_group
        base = g.derived(
            f"{name}_base, side {side}",
            (rows, n // self.n_group),
            lambda values: values[side].reshape(rows, -1),
            g.weight(f"{name}_base"),
        )
        taken = reduce(g.concat, [neighbour(g, x, -tap) for tap in range(self.n_taps)])
        taken = taken.reshape(x.shape[0], rows, n // self.n_group)
        y = taken * base + taken * more.reshape(x.shape[0], rows, 1)
        return g.sum(y.reshape(x.shape[0], self.n_taps, n), axis=-2)


def read_convolutions(hparams: HParams, n_embd: int) -> Convolutions:
    n_taps, size = hparams.positive("conv_kernel_size"), hparams.positive("conv_group_size")
    if n_embd % size:
        raise hparams.wrong("conv_group_size", f"is {size}, expected a divisor of {n_embd}")
    return Convolutions(n_taps, n_embd // size)


def lattice(g: GraphBuilder, hparams: HParams, logits: Tensor, hidden: Tensor) -> None:
    """Add the outputs ``candidates`` and ``scores``, which select the tokens of a block from the second on.

    ``candidates``, int32 ``[n_outputs, k]``, are the most probable tokens of a position. ``scores [n_outputs, k * k]``
    are those of each candidate after the first candidate of the previous position, after the second, and so on. The
    position before the second has the block's first token; its scores are repeated k times.
    """
    n_vocab, t = width(logits), logits.shape[0]
    k, rank = hparams.positive("selector_top_k"), hparams.positive("selector_rank")
    if width(hidden) < k * (k + 1):
        raise hparams.wrong("selector_top_k", f"is {k}, too many for a width of {width(hidden)}")
    leading, following = (g.weight(f"selector_{name}.weight", (n_vocab, rank)) for name in ("predecessor", "successor"))
    gate = linear(g, hidden, "selector_hidden", rank)
    candidates = g.top_k(logits, k)
    own, after = g.gather(logits, candidates), g.embedding(following, candidates)
    begins = places(g, 0, 1)
    token = reduce(g.concat, [g.embedding(leading, g.tokens)] * k)
    chosen = g.embedding(leading, candidates).reshape(t, k * rank)
    before = neighbour(g, chosen + (token + chosen * -1.0) * begins, -1)
    scores = []
    for i in range(k):
        asked = g.slice(before, i * rank, (i + 1) * rank) * gate
        scores.append(g.sum(after * asked.reshape(t, 1, rank), axis=-1) + own)
    g.output("candidates", g.get_rows(candidates, g.output_ids))
    g.output("scores", g.get_rows(reduce(g.concat, scores), g.output_ids))
