"""The CUDA kernel for attention over paged caches, emulated: alone and in whole models."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

import pumice
from nightly import variants
from pumice_mlx import paged, sums
from reference_models import error
from tiny_models import N_CTX
from tiny_zoo import LIMITS, ZOO

MODELS = ["llama-bias", "gemma3", "gpt-oss", "qwen3next", "llama4"]
CASES = {
    "short": (1, (2, 4, 64), 32, [5], {}),
    "batch": (3, (2, 4, 64), 32, [300, 0, 1000], {"sinks": True}),
    "narrow groups": (2, (2, 8, 128), 32, [300, 700], {"type": mx.float32}),
    "window": (2, (1, 3, 80), 16, [300, 650], {"type": mx.float32, "reach": 100}),
    "pairs": (2, (2, 2, 32), 32, [40, 3], {"turn": (False, 16)}),
    "halves": (2, (2, 1, 32), 32, [40, 3], {"turn": (True, 10)}),
    "wide": (1, (2, 2, 256), 32, [900], {"stores": False}),
}


@pytest.fixture(autouse=True)
def emulated(cuda_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Call the kernel where MLX has CUDA's; nothing is compiled by MLX, so that it gets arrays with values."""
    if sys.platform != "linux":
        pytest.skip("threads take turns by ucontext.h")
    monkeypatch.setattr(mx.fast, "cuda_kernel", cuda_kernel, raising=False)
    monkeypatch.setattr(paged, "is_available", lambda: True)
    for kernel in (paged._kernel, paged.works, sums._kernel, sums.works):
        kernel.cache_clear()
    mx.disable_compile()
    yield
    mx.enable_compile()
    for kernel in (paged._kernel, paged.works, sums._kernel, sums.works):
        kernel.cache_clear()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_and_what_it_stores(case: Any) -> None:
    n, (n_keys, n_queries, width), size, lasts, options = case
    type, reach = options.get("type", mx.float16), options.get("reach", 0)
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> mx.array:
        return mx.array(rng.normal(size=shape)).astype(type)

    table = rng.permutation(n * 1024 // size).astype(np.int32).reshape(n, -1)
    keys, values = (numbers(n * 1024, n_keys * width) for _ in range(2))
    rows = numbers(n, n_keys * n_queries + 2 * n_keys, width)  # parts of a product
    q, k, v = mx.split(rows, [n_keys * n_queries, n_keys * (n_queries + 1)], axis=1)
    last = np.array(lasts)
    first = np.maximum(last - reach + 1, 0) if reach else 0 * last
    cells = table[np.arange(n), last // size] * size + last % size
    places = np.stack([cells, first, last], axis=1).astype(np.int32)
    sinks = mx.array(rng.normal(size=n_keys * n_queries), mx.float32) if options.get("sinks") else None
    stores = options.get("stores", True)
    turn, turned_q, turned_k = None, q, k
    if "turn" in options:
        neox, half = options["turn"]
        cos, sin = (mx.array(rng.normal(size=(n, 1, width)), mx.float32) for _ in range(2))
        cos[..., 2 * half :], sin[..., 2 * half :] = 1, 0
        order = np.arange(width)
        order[: 2 * half] = np.roll(order[: 2 * half], half) if neox else order[: 2 * half] ^ 1
        turned_q, turned_k = ((x * cos + x[..., mx.array(order)] * sin).astype(type) for x in (q, k))
        turn = paged.Rotation(cos, sin, neox, half)
    expected = [as_float(x) for x in (keys, values)]
    for rows, x in zip(expected, (turned_k, v), strict=True) if stores else ():
        rows[cells] = as_float(x).reshape(n, -1)
    arrived = mx.zeros((n * n_keys * n_queries,), mx.uint32)
    mx.eval(arrived, keys, values)
    where = paged.Places(mx.array(table), mx.array(places), size, reach)
    y = paged.attend(q, (k, v) if stores else None, sinks, (keys, values), arrived, where, 0.125, turn)
    for rows, cache in zip(expected, (keys, values), strict=True):
        np.testing.assert_array_equal(as_float(cache), rows)
    assert not np.array(arrived).any()
    for i in range(n):
        positions = np.arange(first[i], last[i] + 1)
        seen = table[i, positions // size] * size + positions % size
        of_heads = [rows[seen].reshape(len(seen), n_keys, 1, width).repeat(n_queries, 2) for rows in expected]
        context_keys, context_values = (x.reshape(len(seen), -1, width).swapaxes(0, 1) for x in of_heads)
        scores = np.einsum("hpd,hd->hp", context_keys, as_float(turned_q)[i]) * 0.125
        others = np.zeros(len(scores)) if sinks is None else np.exp(np.array(sinks))
        weights = np.exp(scores)
        right = np.einsum("hp,hpd->hd", weights, context_values) / (weights.sum(-1) + others)[:, None]
        np.testing.assert_allclose(as_float(y)[i], right, atol=1e-5 if type == mx.float32 else 2e-3)


def as_float(x: mx.array) -> Any:
    return np.array(x.astype(mx.float32))


@pytest.mark.parametrize("type", [mx.float32, mx.float16], ids=str)
def test_sums_and_their_norms(type: mx.Dtype) -> None:
    rng = np.random.default_rng(0)
    x, y, weight = (mx.array(rng.normal(size=shape), mx.float32) for shape in ((3, 200), (3, 200), (200,)))
    total, normed = sums.add_and_norm(x, y.astype(mx.float16), weight, 1e-5, type)
    right = np.array(x) + as_float(y.astype(mx.float16))
    np.testing.assert_array_equal(np.array(total), right)
    right = right / np.sqrt((right**2).mean(-1, keepdims=True) + 1e-5) * np.array(weight)
    np.testing.assert_allclose(as_float(normed), right, rtol=2e-6 if type == mx.float32 else 1e-3)
    _, normed = sums.add_and_norm(1e9 * x, y, 1e9 * weight, 1e-5, type)
    assert np.isfinite(as_float(normed)).all()


@pytest.mark.parametrize("name", variants(MODELS, ["llama-bias", "gpt-oss", "qwen3next"]))
def test_token_by_token(tiny_file: Any, tiny_logits: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    attend = paged.attend
    monkeypatch.setattr(paged, "attend", lambda *arguments: calls.append(1) or attend(*arguments))
    config = {"mlx": {"activations": "float32", "compile": "always"}}
    with pumice.load(tiny_file(name), backend="mlx", kv_type="f32", n_ctx=N_CTX, n_batch=1, config=config) as model:
        assert list(model.backends) == ["mlx"]
        found = model.logits(ZOO[name].ids)
    assert error(found, tiny_logits[name]) < LIMITS.get(name, 1e-6)
    assert calls, "the kernel was never called"
