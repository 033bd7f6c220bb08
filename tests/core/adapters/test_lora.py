"""Adapters: llama.cpp's logits, scales a request, and files that do not fit."""

from pathlib import Path

import numpy as np
import pytest

import pumice
from adapters import ATTENTION, CASES, write_adapter, write_case
from pumice.errors import ModelError, RequestError
from reference_models import error
from tiny_models import IDS
from tiny_zoo import ZOO

LOGITS = np.load(Path(__file__).parents[2] / "fixtures" / "lora_logits.npz")
BACKENDS = {"numpy": 1e-6, "cpu": 1e-4}  # and the largest error
GREEDY = {"temperature": 0.0, "max_tokens": 6}


def load(folder, model, adapters, backend="numpy", **options):
    path = folder / "model.gguf"
    if not path.exists():
        ZOO[model].write(path)
    named = {f"a{i}": str(adapter) for i, adapter in enumerate(adapters)}
    return pumice.load(path, backend=backend, kv_type="f32", config={"adapters": named}, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_logits_are_llama_cpps(tmp_path, case, backend):
    files = write_case(tmp_path, case)
    with load(tmp_path, CASES[case][0], [path for path, _ in files], backend) as model:
        scales = {f"a{i}": scale for i, (_, scale) in enumerate(files)}
        logits = model.logits(IDS, adapters=scales)
        assert error(logits, LOGITS[case]) < BACKENDS[backend]
        assert error(model.logits(IDS, adapters={}), LOGITS[case]) > 1e-3


def test_requests_of_one_batch_have_scales_of_their_own(tmp_path):
    files = [path for path, _ in write_case(tmp_path, "two")]
    wanted = [{"a0": 1.0}, {"a1": 2.0}, {}, None, {"a0": 1.0, "a1": -1.0}]
    prompts = [IDS[:9], IDS[2:12], IDS[:9], IDS[:9], IDS[:9]]
    with load(tmp_path, "llama-bias", files, n_parallel=5, n_ctx=256) as model:
        alone = [model.generate(p, adapters=a, **GREEDY).tokens for p, a in zip(prompts, wanted, strict=True)]
        together = model.generate_many(prompts, each=[{"adapters": adapters} for adapters in wanted], **GREEDY)
        assert [each.tokens for each in together] == alone
    with load(tmp_path, "llama-bias", []) as model:
        assert model.generate(prompts[2], **GREEDY).tokens == alone[2]
    assert len({tuple(tokens) for tokens in alone}) > 2


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        ({"b": 1.0}, "the model has no adapter 'b'; it has: a0"),
        ({"a0": "much"}, "adapters must be a mapping of names to numbers, not {'a0': 'much'}"),
        ({"a0": float("nan")}, "adapters must be a mapping of names to numbers"),
        ({"a0": float("inf")}, "the scale of 'a0' must be a finite number"),
        (["a0"], "adapters must be a mapping of names to numbers"),
    ],
)
def test_scales_that_are_wrong(tmp_path, adapters, message):
    files = [path for path, _ in write_case(tmp_path, "attention")]
    with load(tmp_path, "llama-bias", files) as model, pytest.raises(RequestError, match=message):
        model.generate(IDS, adapters=adapters, **GREEDY)


def test_embeddings_have_adapters(tmp_path):
    files = [path for path, _ in write_case(tmp_path, "two")]
    texts = [IDS[:9], IDS[2:12]]
    with load(tmp_path, "llama-bias", files) as model:
        of = {str(adapters): model.embed(texts, adapters=adapters) for adapters in (None, {}, {"a1": 1.0})}
        trained = model.embed(texts, adapters={"a0": 1.0, "a1": 1.0})
        with pytest.raises(RequestError, match="the model has no adapter 'b'"):
            model.embed(texts, adapters={"b": 1.0})
    assert of["None"] == pytest.approx(trained)
    for number, alone in ((0, "{}"), (1, "{'a1': 1.0}")):
        with load(tmp_path, "llama-bias", files[1 : 1 + number]) as model:
            assert of[alone] == pytest.approx(model.embed(texts), abs=1e-5)
    assert np.abs(of["None"] - of["{}"]).max() > 0.01


@pytest.mark.parametrize(
    ("changes", "names", "message"),
    [
        ({"general.type": "model"}, ATTENTION, "neither a LoRA adapter nor a control vector: general.type"),
        ({"general.type": [1, 2]}, ATTENTION, "neither a LoRA adapter nor a control vector: general.type"),
        ({"general.architecture": [1, 2]}, ATTENTION, "but the model is 'llama'"),
        ({"adapter.lora.alpha": "x"}, ATTENTION, "'adapter.lora.alpha' is 'x', expected a number"),
        ({"general.architecture": "qwen2"}, ATTENTION, "the adapter is for 'qwen2', but the model is 'llama'"),
        ({}, ["blk.0.attn_q.weight", "blk.9.attn_q.weight"], "changes 'blk.9.attn_q.weight', which this model does"),
        ({}, [], "the adapter has no tensors"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, ATTENTION, "activated LoRA adapters"),
    ],
)
def test_files_that_do_not_fit(tmp_path, changes, names, message):
    zoo = ZOO["llama-bias"]
    shapes = {**zoo.shapes, "blk.9.attn_q.weight": (64, 64)}
    path = write_adapter(tmp_path / "a.gguf", type(zoo)(zoo.architecture, zoo.metadata, shapes), names, **changes)
    with pytest.raises(ModelError, match=message):
        load(tmp_path, "llama-bias", [path])
