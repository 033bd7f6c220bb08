"""Parts shared by all versions of RWKV: token shift, and heads without positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import Decoder, LayerNormDecoder
from pumice.plugin.nn.blocks import linear, width

GROUP_EPS = 64e-5  # epsilon of the group norm over each head's results


class TimeMixDecoder(Decoder):
    """A decoder whose attention is a time mix: linear attention on inputs blended with the previous token's."""

    #: Whether each head's results are normalized: always, never, or if the file has weights for it (None).
    group_norm: ClassVar[bool | None] = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.d_head = hparams.positive("wkv.head_size")
        if self.n_embd % self.d_head:
            raise hparams.wrong("wkv.head_size", f"is {self.d_head}, expected a divisor of {self.n_embd}")
        self.n_head = self.n_embd // self.d_head

    def of_heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], width(x) // self.d_head, self.d_head)

    def normed(self, g: GraphBuilder, y: Tensor, blk: str) -> Tensor:
        """Return the results of all heads, ``[t, n_embd]``."""
        name, shape = f"{blk}time_mix_ln.weight", (self.n_embd,)
        if not (self.group_norm or (self.group_norm is None and g.find_weight(name))):
            return y.reshape(y.shape[0], self.n_embd)
        y = g.layer_norm(y, None, None, GROUP_EPS).reshape(y.shape[0], self.n_embd)
        return y * g.weight(name, shape) + g.weight(f"{blk}time_mix_ln.bias", shape)


class RWKV(TimeMixDecoder, LayerNormDecoder):
    """Layers of a time mix and a channel mix, after a norm of the embeddings."""

    norms_before = ("attn_norm", "attn_norm_2")
    embedding_norm = "token_embd_norm"

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """The channel mix."""
        change = to_previous(g, x)
        k = between(g, x, change, f"{blk}channel_mix_lerp_k")
        return linear(
            g,
            g.relu_squared(linear(g, k, blk + "channel_mix_key", self.n_ff(i))),
            blk + "channel_mix_value",
            self.n_embd,
        )


def to_previous(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return the previous token's values minus each token's; the first token's predecessor is 0."""
    shift = g.derived(
        f"token shift of {width(x)}", (width(x), 2), lambda: np.tile(np.array([1, 0], np.float32), (width(x), 1))
    )
    return g.conv1d(x, shift, None) + x * -1.0


def between(g: GraphBuilder, x: Tensor, change: Tensor, name: str) -> Tensor:
    """Move ``x`` toward its predecessor by the fraction in the weight."""
    return change * g.weight(f"{name}.weight", (width(x),)) + x


def low_rank(
    g: GraphBuilder, x: Tensor, name: str, rank: int, n_out: int, between: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Multiply by two matrices, ``{name}1`` and ``{name}2``, with a function between them."""
    y = linear(g, x, f"{name}1", rank)
    return linear(g, between(y) if between else y, f"{name}2", n_out)
