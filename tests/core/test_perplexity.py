"""Perplexity, by hand and next to llama-perplexity."""

import json
import math
import re

import numpy as np
import pytest

from pumice.demo import demo_model_path
from pumice.errors import RequestError
from pumice.perplexity import perplexity

TEXT = """Once upon a time there was a little girl named Lily. She loved to play outside in the park with her dog.
One day, they found a big red ball under a tree. "Look!" said Lily. "Let us play with it!" The dog was very happy.
"""


class Counting:
    """Always thinks that token t is t + 1 times as likely as token 0."""

    def __init__(self, n_vocab):
        self.n_vocab = n_vocab
        self.read = []

    def logits(self, ids):
        self.read.append(list(ids))
        return np.tile(np.log(np.arange(1, self.n_vocab + 1, dtype=np.float32)), (len(ids), 1))


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
    ("n", "n_ctx", "message"), [(15, 8, "the text has 15 tokens; perplexity needs 16"), (9, 2, "short")]
)
def test_what_cannot_be_measured(n, n_ctx, message):
    with pytest.raises(RequestError, match=message):
        next(perplexity(Counting(4), [0] * n, n_ctx))


def test_it_is_llama_perplexitys(llama_cpp, tmp_path):
    import pumice

    path = tmp_path / "text.txt"
    path.write_text(TEXT * 8)
    output = llama_cpp("llama-perplexity", "-m", demo_model_path(), "-f", path, "-c", 64, "--chunks", 4)
    theirs, error = map(float, re.findall(r"PPL = ([\d.]+) \+/- ([\d.]+)", output)[0])
    with pumice.load(n_ctx=64) as model:
        ids = model.tokenize((TEXT * 8).removesuffix("\n"), parse_special=False)
        *_, ours = perplexity(model, ids, 64, bos=model.tokenizer.bos, n_chunks=4)
    assert ours.perplexity == pytest.approx(theirs, rel=0.01)
    assert ours.error == pytest.approx(error, rel=0.02)


def test_the_command(tmp_path, capsys, monkeypatch):
    from pumice.cli.perplexity import command

    path = tmp_path / "text.txt"
    path.write_text(TEXT * 2)
    command.main([str(demo_model_path()), "-f", str(path), "-c", "32", "--json"], standalone_mode=False)
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_ctx"] == 32
    assert facts["tokens"] == 15 * facts["chunks"]
    assert 1 < facts["perplexity"] < 100_000
    with pytest.raises(RequestError, match="the text has"):
        command.main([str(demo_model_path()), "-f", str(path), "-c", "2048"], standalone_mode=False)
