"""Perplexity, by hand and next to llama-perplexity."""

import json
import math
import re

import numpy as np
import pytest

import pumice
from checkpoints import FIXTURES, checkpoint_of
from pumice.cli import cli
from pumice.demo import demo_model_path
from pumice.errors import RequestError
from pumice.evaluate.kl_divergence import context_of, kl_divergence, save_predictions
from pumice.evaluate.perplexity import perplexity
from pumice.quantize import QuantizeOptions, quantize

TEXT = """Once upon a time there was a little girl named Lily. She loved to play outside in the park with her dog.
One day, they found a big red ball under a tree. "Look!" said Lily. "Let us play with it!" The dog was very happy.
"""


class Counting:
    """Always thinks that token t is t + 1 times as likely as token 0."""

    def __init__(self, n_vocab):
        self.n_vocab = n_vocab
        self.read = []

    def continuation_logits(self, beginning, endings):
        self.read += [[*beginning, *ending] for ending in endings]
        row = np.log(np.arange(1, self.n_vocab + 1, dtype=np.float32))
        return [np.tile(row, (len(ending), 1)) for ending in endings]


def test_the_second_half_of_each_chunk_is_scored():
    model = Counting(4)
    ids = [0, 1, 2, 3, 0, 1, 2, 3, 3, 3, 3, 3, 3, 0, 0, 0, 2, 2, 2]
    estimates = list(perplexity(model, ids, 8, bos=1))
    assert model.read == [[1, 1, 2, 3, 0, 1, 2, 3], [1, 3, 3, 3, 3, 0, 0, 0]]
    first = [math.log(10 / (token + 1)) for token in (1, 2, 3)]
    both = first + [math.log(10)] * 3
    assert [estimate.n_tokens for estimate in estimates] == [3, 6]
    assert estimates[0].perplexity == pytest.approx(math.exp(sum(first) / 3), rel=1e-6)
    assert estimates[1].perplexity == pytest.approx(math.exp(sum(both) / 6), rel=1e-6)
    spread = np.std(both) / math.sqrt(5)
    assert estimates[1].error == pytest.approx(estimates[1].perplexity * spread, rel=1e-5)
    assert len(list(perplexity(model, ids, 8, n_chunks=1))) == 1


@pytest.mark.parametrize(
    ("n", "n_ctx", "message"), [(15, 8, "the text has 15 tokens; two chunks of n_ctx 8 need 16: give"), (9, 2, "short")]
)
def test_texts_that_cannot_be_measured(n, n_ctx, message):
    with pytest.raises(RequestError, match=message):
        next(perplexity(Counting(4), [0] * n, n_ctx))


def test_it_is_llama_perplexitys(llama_cpp, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 8)
    output = llama_cpp("llama-perplexity", "-m", demo_model_path(), "-f", path, "-c", 64, "--chunks", 4)
    (theirs,) = re.findall(r"\[4\]([\d.]+)", output)
    with pumice.load(n_ctx=64) as model:
        ids = model.tokenizer.tokenize((TEXT * 8).removesuffix("\n"), parse_special=False)
        *_, ours = perplexity(model, ids, 64, bos=model.tokenizer.bos, n_chunks=4)
    assert ours.perplexity == pytest.approx(float(theirs), rel=0.01)


def test_the_command(tmp_path, capsys, monkeypatch):
    from pumice.cli import cli

    path = tmp_path / "text.txt"
    path.write_text(TEXT * 2)
    cli.main(["perplexity", str(demo_model_path()), "-f", str(path), "-c", "32", "--json"], standalone_mode=False)
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_ctx"] == 32
    assert facts["n_tokens"] == 15 * facts["n_chunks"]
    assert 1 < facts["perplexity"] < 100_000
    with pytest.raises(RequestError, match="the text has"):
        cli.main(["perplexity", str(demo_model_path()), "-f", str(path), "-c", "2048"], standalone_mode=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The demo model in few bits."""
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    quantize(demo_model_path(), path, "Q4_0", options=QuantizeOptions(allow_requantize=True))
    return path


def scored_ids(model):
    return model.tokenizer.tokenize((TEXT * 8).removesuffix("\n"), parse_special=False)


def test_a_model_does_not_diverge_from_itself(tmp_path):
    path = tmp_path / "base"
    with pumice.load(n_ctx=32) as model:
        *_, plain = perplexity(model.engine, scored_ids(model), 32, n_chunks=3)
        *_, saved = save_predictions(path, model.engine, scored_ids(model), 32, n_chunks=3)
        *_, result = kl_divergence(model.engine, path)
    assert saved == plain == result.perplexity
    assert 1 < result.base <= plain.perplexity * 1.001  # the least probable tokens count as more probable
    assert result.divergence == pytest.approx(0, abs=1e-5)
    assert result.same_top > 0.99
    assert context_of(path) == 32


def test_a_file_next_to_the_folder_that_it_was_made_from(tmp_path, capsys):
    case = json.loads((FIXTURES / "cases.json").read_text())["llama-bpe"]
    folder = checkpoint_of(tmp_path / "m", case)
    (tmp_path / "text.txt").write_text(TEXT * 2)

    def run(*arguments):
        cli.main([*map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().out

    run("convert", folder, "-o", tmp_path / "q8.gguf", "--type", "q8_0")
    run("perplexity", folder, "-f", tmp_path / "text.txt", "-c", 32, "--save-logits", tmp_path / "base")
    found = json.loads(run("perplexity", tmp_path / "q8.gguf", "--kl-divergence-base", tmp_path / "base", "--json"))
    assert 0 < found["divergence"] < 1e-3


def test_divergence_is_llama_perplexitys(llama_cpp, small, tmp_path):
    text, theirs, ours = tmp_path / "text.txt", tmp_path / "theirs", tmp_path / "ours"
    text.write_text(TEXT * 8)
    options = ["-c", 64, "--chunks", 6]
    llama_cpp("llama-perplexity", "-m", demo_model_path(), "-f", text, *options, "--save-all-logits", theirs)
    with pumice.load(n_ctx=64) as model:
        bos = model.tokenizer.bos
        list(save_predictions(ours, model, scored_ids(model), 64, bos=bos, n_chunks=6))
    assert ours.stat().st_size == theirs.stat().st_size
    head = 8 + 12 + 4 * 64 * 6
    assert ours.read_bytes()[:head] == theirs.read_bytes()[:head]
    with pumice.load(small, n_ctx=64) as model:
        *_, result = kl_divergence(model, theirs, bos=bos)
    output = llama_cpp("llama-perplexity", "-m", small, *options, "--kl-divergence", "--kl-divergence-base", ours)
    (mean,) = re.findall(r"Mean +KLD: +([\d.]+)", output)
    (top,) = re.findall(r"Same top p: +([\d.]+)", output)
    assert result.divergence == pytest.approx(float(mean), rel=0.05)
    assert 100 * result.same_top == pytest.approx(float(top), abs=1.5)


@pytest.mark.parametrize(("content", "message"), [(b"", "not a file of"), (b"_logits_" + bytes(12), "incomplete")])
def test_files_that_are_no_predictions(tmp_path, content, message):
    path = tmp_path / "base"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=message):
        next(kl_divergence(Counting(4), path))
