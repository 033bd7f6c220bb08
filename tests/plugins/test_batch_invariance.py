"""A token has the same logits, to the last bit, however a prompt is cut and whatever other sequences are beside it."""

import numpy as np
import pytest

import pumice
from nightly import variants
from pumice.quantize import quantize
from tiny_models import IDS
from tiny_zoo import ZOO

MODELS = ["gemma2", "gpt-oss", "qwen3moe", "mamba", "deepseek2"]
LONG = [*IDS, *IDS[::-1], *IDS][:60]


def logits(path, n_batch, **options):
    with pumice.load(path, n_ctx=128, n_batch=n_batch, **options) as model:
        alone = model.logits(LONG)
        model.generate_many([LONG[:50], LONG[3:40], LONG[:7]], max_tokens=1)
        return alone


@pytest.mark.parametrize(
    ("backend", "to", "name"),
    variants(
        [(*kind, name) for kind in (("cpu", "Q8_0"), ("cpu", "BF16"), ("numpy", "F32")) for name in MODELS],
        [
            *(("cpu", "Q8_0", name) for name in MODELS),
            *(("cpu", "BF16", name) for name in ("gpt-oss", "mamba")),
            *(("numpy", "F32", name) for name in ("gemma2", "qwen3moe")),
        ],
    ),
)
def test_prompts_may_be_cut_anywhere(tmp_path, backend, to, name):
    path = ZOO[name].write(tmp_path / "model.gguf")
    if to != "F32":
        quantize(path, tmp_path / "encoded.gguf", to)
        path = tmp_path / "encoded.gguf"
    options = {"backend": backend, "kv_type": "f16", "config": {backend: {"batch_invariant": True}}}
    whole, *others = (logits(path, n_batch, **options) for n_batch in (64, 1, 7))
    for other in others:
        np.testing.assert_array_equal(other, whole)
