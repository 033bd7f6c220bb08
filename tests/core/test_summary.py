"""Summaries of models by their headers, without loading them."""

import pumice
from gguf_files import tiny_llama
from pumice.gguf import GGUFFile


def test_the_demo_model():
    with GGUFFile.open(pumice.demo_model_path()) as file:
        summary = pumice.Summary.of(file)
    assert (summary.architecture, summary.file_type, summary.n_vocab) == ("llama", "Q8_0", 2048)
    assert summary.n_bytes == pumice.demo_model_path().stat().st_size
    assert (summary.size("context_length"), summary.size("absent")) == (512, 0)
    assert "tokenizer.ggml.tokens" not in summary.metadata
    with pumice.load(backend="numpy") as model:
        assert model.summary == summary


def test_a_file_that_does_not_tell_its_type(tmp_path):
    with GGUFFile.open(tiny_llama(tmp_path / "tiny.gguf")) as file:
        assert pumice.Summary.of(file).file_type == "F32"
