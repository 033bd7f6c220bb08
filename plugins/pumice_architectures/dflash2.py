"""DFlash 2: convolutions over a block, and a selector of tokens that follow each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import Activation, linear, width
from pumice.plugin.nn.places import neighbour
from pumice_architectures.dspark import Rows, tokens_before

EXCLUDED = 3e4  # by what logits of tokens that are no candidates are lowered; float16 has it
STEEP = 6e4  # twice: whatever is lower than the last candidate by 1e-5 is no candidate


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


def selected(g: GraphBuilder, hparams: HParams, logits: Tensor, hidden: Tensor) -> Tensor:
    """Return the ``logits [t, n_vocab]`` of the selector, from the second position of a block on.

    Candidates are the most probable tokens of a position; to the logit of each is added how well it follows the token
    that was selected at the position before. Logits of other tokens are lower by ``EXCLUDED``.
    """
    n_vocab = width(logits)
    k, rank = hparams.positive("selector_top_k"), hparams.positive("selector_rank")
    if width(hidden) < k * (k + 1):
        raise hparams.wrong("selector_top_k", f"is {k}, too many for a width of {width(hidden)}")
    leading, following = (g.weight(f"selector_{name}.weight", (n_vocab, rank)) for name in ("predecessor", "successor"))
    gate = linear(g, hidden, "selector_hidden", rank)
    least = g.slice(g.gather(logits, g.top_k(logits, k)), k - 1, k)
    below = g.clamp((logits + least * -1.0) * STEEP, -1.0, 0.0)
    logits = logits + g.clamp(below * STEEP, -EXCLUDED, 0.0)

    def added(before: Tensor, rows: Rows) -> Tensor:
        return g.linear(before * rows(gate), following)

    own = tokens_before(g, leading, logits, range(1, hparams.positive("block_size")), added)
    return logits + added(own, lambda x: x)
