"""The executable specification against formulas written another way, in float64, with SciPy or plain loops.

What llama.cpp's logits check in whole models (architectures/test_logits.py) has no formula here: products, norms,
embeddings and rotations.
"""

import math

import numpy as np
import pytest

from graphs import Case, Graphed, batch, builder, limits
from imported_late import Late
from pumice.backend.step import Memory, Step
from pumice.gguf import KV_TYPES, GGMLType, dequantize, quantize
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph
from pumice_numpy import NumpyBackend

special = Late("scipy.special")

rng = np.random.default_rng(1)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def run(tmp_path, build, weights=None, **activations):
    n = len(next(iter(activations.values())))
    case = Case(lambda g, a: build(g, a), activations, weights or {})
    return Graphed(tmp_path, NumpyBackend(), case, limits())(activations, batch([n]))


def check(actual, expected, tolerance=2e-6):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        *(("sigmoid", special.expit), ("tanh", np.tanh), ("exp", np.exp), ("sin", np.sin)),
        ("silu", lambda x: x * special.expit(x)),
        ("relu", lambda x: np.maximum(x, 0)),
        ("softplus", lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)),
        ("relu_squared", lambda x: np.maximum(x, 0) ** 2),
        ("sqrt", lambda x: np.where(x < 0, np.nan, np.abs(x) ** 0.5)),
        ("softmax", lambda x: special.softmax(x, axis=-1)),
        ("gelu", lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("gelu_erf", lambda x: x * special.ndtr(x)),
    ],
)
def test_elementwise(tmp_path, op, formula):
    x = np.concatenate([f32(3, 6) * 4, [[-80, -20, -1e-3, 0, 20, 80]]]).astype(np.float32)
    check(run(tmp_path, lambda g, a: getattr(g, op)(a["x"]), x=x), formula(x.astype(np.float64)))


def test_arithmetic_broadcasts_over_tokens_and_ones(tmp_path):
    x, y, w = f32(3, 4, 5), f32(3, 4, 1), f32(5)
    actual = run(tmp_path, lambda g, a: (a["x"] + g.weight("w")) * a["y"] / a["y"] * 0.5, {"w": w}, x=x, y=y)
    check(actual, (x + w) * 0.5)
    check(run(tmp_path, lambda g, a: g.clamp(g.scale(a["x"], 2.0, 1.0), -1, 2), x=x), np.clip(2 * x + 1, -1, 2))


def test_a_weight_too_large_to_keep_is_decoded_in_parts(tmp_path):
    x, w = f32(3, 8), f32(5, 8).astype(np.float16)
    case = Case(lambda g, a: g.linear(a["x"], g.weight("w")), {"x": x}, {"w": w})
    backend = NumpyBackend(NumpyBackend.Options(cache_mib=0))
    check(Graphed(tmp_path, backend, case, limits())({"x": x}, batch([3])), x @ w.T.astype(np.float32))


def test_top_k_gather_and_sum(tmp_path):
    x = np.array([[1, 5, 5, -2], [0, -1, -1, 9]], np.float32)
    assert run(tmp_path, lambda g, a: g.top_k(a["x"], 3), x=x).tolist() == [[1, 2, 0], [3, 0, 1]]
    check(run(tmp_path, lambda g, a: g.gather(a["x"], g.top_k(a["x"], 2)), x=x), [[5, 5], [9, 0]])
    check(run(tmp_path, lambda g, a: g.sum(a["x"], -1, keepdims=True), x=x), [[9], [7]])


def dense_attention(
    q, k, v, scale, window=0, softcap=0.0, sinks=None, causal=True, chunk=0, slopes=(), bias=None, cache=True
):  # fmt: skip
    """One sequence, one query and head at a time, in float64; what each option means is written as in the papers."""
    n, n_head, _ = q.shape
    y = np.zeros((n, n_head, v.shape[-1]))
    for t in range(n):
        seen = [i for i in range(n) if not causal or i <= t]
        if window:
            seen = [i for i in seen if (t - i < window if causal else abs(t - i) <= window // 2)]
        seen = [i for i in seen if not chunk or i // chunk == t // chunk]
        for h in range(n_head):
            keys, values = (x[seen, h // (n_head // x.shape[1])].astype(np.float64) for x in (k, v))
            scores = keys @ q[t, h] * scale
            scores = softcap * np.tanh(scores / softcap) if softcap else scores
            scores += [slopes[h] * (i - t) for i in seen] if slopes else 0
            if bias is not None:
                reach = bias.shape[1] // 2
                scores += [bias[h, reach + min(max(i - t, -reach), reach)] for i in seen]
            scores = scores if sinks is None else np.append(scores, sinks[h])
            y[t, h] = special.softmax(scores)[: len(seen)] @ values
    return y


def attend_in_parts(tmp_path, q, k, v, parts, kv_type="f32", weights=None, **attrs):
    """Feed two sequences, the second one with tokens reversed, in parts of the given lengths."""
    window = attrs.get("window", 0)

    def build(g, a):
        sinks = g.weight("sinks") if weights else None
        return g.attention(a["q"], a["k"], a.get("v"), sinks=sinks, **attrs)

    activations = {"q": q, "k": k} | ({} if v is None else {"v": v})
    case = Case(build, activations, weights or {})
    graphed = Graphed(tmp_path, NumpyBackend(), case, limits((window,), kv_type, n_seqs=2))
    return in_parts(graphed, activations, parts, window)


def in_parts(graphed, activations, parts, window=0):
    """Return the outputs of two sequences that are read in parts, the second one reversed."""
    n_past, outputs = 0, ([], [])
    for n in parts:
        rows = slice(n_past, n_past + n)
        both = {name: np.concatenate([x[rows], x[::-1][rows]]) for name, x in activations.items()}
        y = graphed(both, batch([n, n], [n_past, n_past], (window,)))
        outputs[0].append(y[:n])
        outputs[1].append(y[n:])
        n_past += n
    return tuple(np.concatenate(o) for o in outputs)


@pytest.mark.parametrize("parts", [[20], [1] * 20, [7, 1, 12], [16, 4]])
@pytest.mark.parametrize("attrs", [{}, {"window": 5}, {"softcap": 2.0}, {"window": 11, "sinks": True}])
def test_attention_in_any_parts_is_dense_attention(tmp_path, parts, attrs):
    attrs = {"scale": 0.3, **attrs}
    weights = {"sinks": f32(4)} if attrs.pop("sinks", False) else None
    q, k, v = f32(20, 4, 8), f32(20, 2, 8), f32(20, 2, 6)
    first, second = attend_in_parts(tmp_path, q, k, v, parts, weights=weights, **attrs)
    sinks = weights["sinks"] if weights else None
    check(first, dense_attention(q, k, v, sinks=sinks, **attrs), 1e-5)
    check(second, dense_attention(q[::-1], k[::-1], v[::-1], sinks=sinks, **attrs), 1e-5)


VARIANTS = {
    "chunk": {"chunk": 6},
    "alibi": {"slopes": (0.5, 0.25, 0.125, 1.0)},
    "relative": {"bias": True},
    "whole": {"causal": False, "cache": False},
    "near": {"causal": False, "cache": False, "window": 5},
    "step": {"cache": False, "softcap": 2.0},
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_variants_of_attention_are_dense_attention(tmp_path, variant):
    q, k, v, table = f32(20, 4, 8), f32(20, 2, 8), f32(20, 2, 6), f32(4, 7)
    attrs = {"scale": 0.3, **variant}
    expected = dense_attention(q, k, v, **{**attrs, "bias": table if attrs.get("bias") else None})

    def build(g, a):
        bias = {"bias": g.weight("bias")} if "bias" in attrs else {}
        return g.attention(a["q"], a["k"], a["v"], **{**attrs, **bias})

    case = Case(build, {"q": q, "k": k, "v": v}, {"bias": table})
    window = attrs.get("chunk", 0)
    graphed = Graphed(tmp_path, NumpyBackend(), case, limits((window,), n_seqs=2))
    other = {name: np.concatenate([x[:13], x]) for name, x in case.activations.items()}  # another sequence before it
    check(graphed(other, batch([13, 20], windows=(window,)))[13:], expected, 1e-5)


def test_attention_to_keys_stored_by_another_graph(tmp_path):
    """Cross attention: an encoder's keys and values, of two sequences, which their decoders read in two steps."""
    bounds, backend = limits(n_seqs=4), NumpyBackend()
    encoder = builder(tmp_path, {})
    k, v, q = (Tensor(name, ("n_tokens", 2, 8), builder=encoder) for name in "kvq")
    encoder.kv_store(k, v, "memory")
    encoder.output("keys", encoder.scale(k, 1.0))
    decoder = GraphBuilder({}, 1, 64, shared=encoder)
    result = decoder.attention(q, None, None, scale=0.3, causal=False, cache=encoder.memory("memory"))
    stores, reads = (compile_graph(backend, graph, bounds) for graph in (encoder.finish(), decoder.finish(result)))

    keys, values, queries = f32(16, 2, 8), f32(16, 2, 8), f32(4, 2, 8)
    filled = batch([9, 7])
    stores.run(Step(filled, {"k": keys, "v": values}))
    for n_past in (0, 1):
        step = batch([1, 1], [n_past, n_past])
        step.memory = Memory(np.array([7, 9], np.int32), filled.block_tables[0][::-1])
        y = reads.run(Step(step, {"q": queries[2 * n_past : 2 * n_past + 2]}))[result.name]
        for row, part in enumerate((slice(9, 16), slice(0, 9))):
            query = np.repeat(queries[2 * n_past + row][None], part.stop - part.start, axis=0)
            check(y[row], dense_attention(query, keys[part], values[part], 0.3, causal=False)[0], 1e-5)


def test_positions_of_several_axes(tmp_path):
    """M-RoPE: each pair turns by the position in its column."""
    x, freqs, axes = f32(5, 2, 8), (1.0, 0.5, 0.1), (0, 2, 1)
    columns = rng.integers(0, 50, (5, 3)).astype(np.int32)

    def build(g, a):
        return g.rope(a["x"], a["at"], freqs=freqs, neox=False, axes=axes)

    expected = x.astype(np.complex64)
    for i, (freq, axis) in enumerate(zip(freqs, axes, strict=True)):
        turned = (x[..., 2 * i] + 1j * x[..., 2 * i + 1]) * np.exp(1j * freq * columns[:, axis])[:, None]
        expected[..., 2 * i], expected[..., 2 * i + 1] = turned.real, turned.imag
    check(run(tmp_path, build, x=x, at=columns), expected.real, 1e-5)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_attention_reads_back_what_the_cache_type_can_hold(tmp_path, kv_type):
    type = GGMLType[kv_type.upper()]

    def stored(x):
        return dequantize(quantize(x.reshape(len(x), -1), type), type).reshape(x.shape)

    q, k, v = f32(20, 4, 32), f32(20, 2, 32), f32(20, 2, 32)
    first, _ = attend_in_parts(tmp_path, q, k, v, [13, 7], kv_type, scale=0.2)
    check(first, dense_attention(q, stored(k), stored(v), 0.2), 1e-5)


@pytest.mark.parametrize("parts", [[10], [1] * 10, [2, 1, 7]])
def test_recurrent_operations_in_any_parts(tmp_path, parts):
    x, dt, b, c = f32(10, 6), np.abs(f32(10, 6)), f32(10, 4), f32(10, 4)
    weights = {"conv": f32(6, 3), "bias": f32(6), "a": -np.abs(f32(6, 4)), "d": f32(6)}

    def build(g, a):
        y = g.conv1d(a["x"], g.weight("conv"), g.weight("bias"))
        return g.ssm_scan(y, a["dt"], g.weight("a"), a["b"], a["c"], g.weight("d"))

    def expected(x, dt, b, c):
        padded = np.concatenate([np.zeros((2, 6)), x])
        y = np.stack([(padded[t : t + 3].T * weights["conv"]).sum(1) + weights["bias"] for t in range(10)])
        h, out = np.zeros((6, 4)), []
        for t in range(10):
            h = h * np.exp(dt[t][:, None] * weights["a"]) + np.outer(dt[t] * y[t], b[t])
            out.append(h @ c[t] + weights["d"] * y[t])
        return np.stack(out)

    activations = {"x": x, "dt": dt, "b": b, "c": c}
    graphed = Graphed(tmp_path, NumpyBackend(), Case(build, activations, weights), limits())
    for _ in range(2):  # a sequence that begins again forgets the one before
        first, second = in_parts(graphed, activations, parts)
        check(first, expected(**activations), 1e-5)
        check(second, expected(*(v[::-1] for v in activations.values())), 1e-5)
