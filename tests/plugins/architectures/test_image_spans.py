"""DeepSeek V4 reads images whole, without its window and with experts of their own, as llama.cpp does."""

import numpy as np
import pytest

import pumice
from image_spans import ENDS, FIXTURE, IDS, MODEL, SPANS, rows
from pumice.engine import Request
from pumice.engine.messages import Span
from pumice.streaming.stream import Stream
from tiny_models import N_CTX, N_VOCAB

LOGITS = np.load(FIXTURE)["logits"]
OPTIONS = {"sampling": {"temperature": 0.0}, "max_tokens": 1, "logprobs": 20, "end_tokens": frozenset()}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return MODEL.write(tmp_path_factory.mktemp("spans") / "deepseek4.gguf")


def next_logprobs(model, end, **options):
    """Return the log-probabilities after the first positions of the prompt, by token."""
    spans = [Span(span.start, rows(span)) for span in SPANS if span.stop <= end]
    request = Request(IDS[:end], media=spans, **OPTIONS | options)
    (chosen,) = Stream.open(model.client, request)[0].completion().logprobs
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
