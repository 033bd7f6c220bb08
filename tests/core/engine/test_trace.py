"""Tracing a model: what an architecture may give."""

import numpy as np
import pytest

from gguf_files import write_gguf
from pumice.errors import ModelError
from pumice.gguf import GGUFFile
from pumice.plugin import Architecture, HParams
from pumice.tracing import trace


class Tiny(Architecture):
    def build(self, g):
        x = g.embedding(g.weight("token_embd.weight"), g.tokens)
        return g.linear(
            x if self.hparams.get_bool("forgets") else g.get_rows(x, g.output_ids), g.weight("output.weight")
        )


def file(folder, forgets, n_tokens):
    metadata = {
        "general.architecture": "tiny",
        "tiny.block_count": 1,
        "tiny.embedding_length": 4,
        "tiny.context_length": 8,
        "tiny.forgets": forgets,
        "tokenizer.ggml.tokens": [str(i) for i in range(n_tokens)],
    }
    weights = {"token_embd.weight": np.ones((6, 4), "f4"), "output.weight": np.ones((6, 4), "f4")}
    return GGUFFile.open(write_gguf(folder / "tiny.gguf", metadata, weights))


def test_logits_of_all_tokens_are_refused(tmp_path):
    problem = r"tiny.gguf: .*must be \[n_outputs, n_vocab\]"
    with file(tmp_path, True, 6) as opened, pytest.raises(ModelError, match=problem):
        trace(opened, Tiny(HParams(opened.metadata)), 8)


def test_a_vocabulary_of_more_tokens_than_logits_is_refused(tmp_path):
    with file(tmp_path, False, 7) as opened, pytest.raises(ModelError, match="has 6 logits, but the vocabulary has 7"):
        trace(opened, Tiny(HParams(opened.metadata)), 8)
