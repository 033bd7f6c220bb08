"""DeepSeek V4 reads images whole, without its window and with experts of their own, as llama.cpp does."""

from dataclasses import replace

import numpy as np
import pytest

import pumice
from gguf_files import write_gguf
from graphs import batch, limits
from image_spans import ENDS, FIXTURE, IDS, MODEL, SPANS, rows
from pumice.backend.step import Step
from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.gguf import GGUFFile
from pumice.graph import GraphBuilder, KVState
from pumice.graph.media import with_media
from pumice.plugin.unstable import MediaRules
from pumice.streaming.stream import Stream
from pumice.testing import compile_graph
from pumice_numpy import NumpyBackend, ops
from tiny_models import N_CTX, N_VOCAB

LOGITS = np.load(FIXTURE)["logits"]
LONG = 8192  # positions of a long context
OPTIONS = {"sampling": {"temperature": 0.0}, "max_tokens": 1, "logprobs": 20, "end_tokens": frozenset()}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return MODEL.write(tmp_path_factory.mktemp("spans") / "deepseek4.gguf")


def next_logprobs(model, end, **options):
    """Return the log-probabilities after the first positions of the prompt, by token."""
    spans = [Embeddings(rows(span), start=span.start) for span in SPANS if span.stop <= end]
    request = Request(IDS[:end], media=spans, **OPTIONS | options)
    (chosen,) = Stream.open(model.engine.client, request)[0].completion().logprobs
    return dict(chosen.top)


@pytest.mark.parametrize(("backend", "n_batch"), [("numpy", 512), ("numpy", 40), ("cpu", 512), ("cpu", 40)])
def test_logits_after_images_are_those_of_llama_cpp(path, backend, n_batch):
    with pumice.load(path, backend=backend, kv_type="f32", n_ctx=N_CTX, n_batch=n_batch) as model:
        for end, row in zip(ENDS, LOGITS, strict=True):
            expected = row - row.max()
            expected -= np.log(np.exp(expected).sum())
            ours = next_logprobs(model, end, cache_salt=str(end))
            assert len(ours) == 20 < N_VOCAB
            np.testing.assert_allclose(list(ours.values()), expected[list(ours)], atol=1e-5, err_msg=str(end))


def test_the_mask_of_an_image_is_exact_where_products_round(tmp_path, monkeypatch):
    """Products of GPUs may have 11 bits, as TF32 has; positions of a context have more."""
    table = {"embedding": np.ones((9, 16), "f4")}
    g = GraphBuilder(
        GGUFFile.open(write_gguf(tmp_path / "a.gguf", {"general.architecture": "a"}, table)).tensors, 1, LONG
    )
    with g.layer(0):
        x = g.embedding(g.weight("embedding"), g.tokens).reshape("n_tokens", 1, 16)
        y = g.attention(x, x, None, scale=1.0, v_dim=16, window=8, cache=KVState("kv", 1, 16, 0, 513))
    graph = with_media(g.finish(y), MediaRules(windowless=512, pads=True), both_ways=True)
    (attention,) = (node for node in graph.nodes if node.op == "attention")
    masked = replace(graph, outputs={"logits": attention.inputs["mask"]}).only(["logits"])
    step, linear = batch([3], [5001]), ops.linear
    inputs = {name: given.fill(step) for name, given in masked.inputs.items() if given.fill}

    def rounded(x, weight, bias):
        return linear(x.astype(np.float16).astype(np.float32), np.float16(weight).astype(np.float32), bias)

    monkeypatch.setitem(ops.OPS, "linear", rounded)
    wide = replace(limits(), n_ctx=LONG)
    (result,) = compile_graph(NumpyBackend(), masked, wide).run(Step(step, inputs)).values()
    for position, row in zip(step.positions, result, strict=True):
        assert np.flatnonzero(row == 0)[0] == position - 7
