"""Gemma 3n (Google 2025): four residual streams, one active (AltUp), low-rank residuals (LAuReL), shared caches.

AltUp is Baykal et al. 2023, arXiv:2301.13310; LAuReL is Menghani et al. 2024, arXiv:2411.07501.
"""

from __future__ import annotations

import math

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import linear, softcap, width
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope
from pumice.plugin.unstable import MediaRules
from pumice_architectures.gemma4 import SharedCaches, from_layer_input, layer_inputs

N_STREAM = 4
N_CACHED = 20  # layers with keys and values
N_SPARSE = 10  # layers with sparse feed-forward activations
SPARSE_AT = 1.6448533535003662  # threshold of the sparse activations in standard deviations above the mean
SOFTCAP = 30.0  # files may lack these five


class Gemma3n(SharedCaches):
    """``streams [t, 4 n_embd]`` run in parallel; a layer processes the first and corrects all by its result."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        n_shared = hparams.get_int("attention.shared_kv_layers", max(self.n_layer - N_CACHED, 0))
        self.n_cached = max(self.n_layer - n_shared, 1)
        self.media_rules = MediaRules(pads=True)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.embed(g)
        n_values = int(g.weight("per_layer_proj_norm.weight").shape[0])
        inputs = layer_inputs(g, x, self.n_layer, n_values, self.eps)
        streams = g.concat(x, self.mapped(g, "altup_proj", repeated(g, x, N_STREAM - 1), x))
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                layer_input = g.slice(inputs, i * n_values, (i + 1) * n_values)
                streams = g.layer_output(self.run_streams(g, streams, layer_input, blk, i))
        first, others = g.slice(streams, 0, self.n_embd), g.slice(streams, self.n_embd, width(streams))
        streams = g.concat(first, self.mapped(g, "altup_unembd_proj", others, first))
        return self.head(g, g.sum(self.apart(streams), axis=-2) * (1 / N_STREAM))

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return softcap(g, super().head(g, x), self.hparams.number("final_logit_softcapping", SOFTCAP))

    def mapped(self, g: GraphBuilder, name: str, x: Tensor, like: Tensor) -> Tensor:
        """Map ``x [t, 3 n_embd]`` by a matrix per stream but the first; the results get the norm of ``like``."""
        n, n_others = self.n_embd, N_STREAM - 1
        y = g.batched_linear(x.reshape(x.shape[0], n_others, n), g.weight(f"{name}.weight", (n_others, n, n)))
        y = y * length(g, like).reshape(x.shape[0], 1, 1) / length(g, y)
        return y.reshape(x.shape[0], n_others * n)

    def apart(self, streams: Tensor) -> Tensor:
        return streams.reshape(streams.shape[0], N_STREAM, self.n_embd)

    def run_streams(self, g: GraphBuilder, streams: Tensor, layer_input: Tensor, blk: str, i: int) -> Tensor:
        predicted = self.predict(g, streams, blk)
        first = g.slice(predicted, 0, self.n_embd)
        news = self.layer(g, first, blk, i) + first * -1.0
        modes = linear(g, self.modes(g, news + first, blk), blk + "altup_correct_coef", N_STREAM)
        corrections = self.apart(repeated(g, news, N_STREAM)) * g.scale(modes, 1.0, 1.0).reshape(*modes.shape, 1)
        streams = predicted + corrections.reshape(*streams.shape)
        y = g.slice(streams, 0, self.n_embd) * g.weight(f"{blk}altup_correct_scale.weight", (self.n_embd,))
        y = self.norm(g, from_layer_input(g, y, blk, layer_input), blk + "post_norm")
        return streams + g.concat(y * 0.0, repeated(g, y, N_STREAM - 1))

    def predict(self, g: GraphBuilder, streams: Tensor, blk: str) -> Tensor:
        """Predict each stream as itself plus a mix of all, with coefficients from the active stream."""
        modes = self.modes(g, g.slice(streams, 0, self.n_embd), blk)
        weights = linear(g, modes, blk + "altup_predict_coef", N_STREAM**2)
        mixed = None
        for start in range(0, N_STREAM**2, N_STREAM):
            of_one = g.slice(weights, start, start + N_STREAM).reshape(streams.shape[0], N_STREAM, 1)
            mix = g.sum(self.apart(streams) * of_one, axis=-2)
            mixed = mix if mixed is None else g.concat(mixed, mix)
        assert mixed is not None
        return streams + mixed

    def modes(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        x = self.norm(g, x, blk + "altup_router_norm") * (1 / self.n_embd)
        return g.tanh(linear(g, x, blk + "altup_router", N_STREAM))

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        x = x + self.norm(g, self.attention(g, h, blk, i), blk + "post_attention_norm")
        x = (x + h + self.bypass(g, h, blk)) * 0.5**0.5
        h = self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, i)
        return x + self.norm(g, h, blk + "post_ffw_norm")

    def bypass(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        y = linear(g, linear(g, x, blk + "laurel_l"), blk + "laurel_r", self.n_embd)
        return self.norm(g, y, blk + "laurel_post_norm")

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        gate, up = (linear(g, x, blk + name, self.n_ff(i)) for name in ("ffn_gate", "ffn_up"))
        threshold = self.threshold(i)
        if math.isfinite(threshold):
            gate = largest(g, gate, threshold)
        return linear(g, g.gelu(gate) * up, blk + "ffn_down", self.n_embd)

    def threshold(self, i: int) -> float:
        """Return the threshold of sparse activations in standard deviations above the mean, or -inf."""
        if f"{self.hparams.architecture}.activation_sparsity_scale" in self.hparams.metadata:
            scale = float(self.hparams.per_layer("activation_sparsity_scale", self.n_layer)[i])
            return scale * math.sqrt(1 - 1 / self.n_ff(i))  # of a deviation that divides by n, not by n - 1
        return SPARSE_AT if i < N_SPARSE else -math.inf

    def window(self, i: int) -> int:
        return sliding_window(self.hparams, None) if is_sliding(self.hparams, i, period=5) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return self.sliding_rope(g, i) if self.window(i) else super().rope(g, i)


def repeated(g: GraphBuilder, x: Tensor, times: int) -> Tensor:
    """Return ``x [t, n]`` repeated: ``[t, times * n]``."""
    return x if times == 1 else g.concat(repeated(g, x, times - 1), x)


def length(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return the Euclidean norm over the last axis, which becomes 1."""
    return g.sqrt(g.sum(x * x, axis=-1, keepdims=True))


def largest(g: GraphBuilder, x: Tensor, threshold: float) -> Tensor:
    """Return the excess of ``x [t, n]`` over ``threshold`` standard deviations above its mean."""
    n = width(x)
    centred = x + g.sum(x, axis=-1, keepdims=True) * (-1 / n)
    deviation = g.sqrt(g.sum(centred * centred, axis=-1, keepdims=True) * (1 / max(1, n - 1)))
    return g.relu(centred + deviation * -threshold)
