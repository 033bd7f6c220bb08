"""The tokenizer trained on the stories, and the packing of stories into rows."""

import itertools

import numpy as np
import pytest
from tokenizers import Tokenizer
from tools.demo_model.corpus import encode_corpus, pack
from tools.demo_model.entropy import entropy
from tools.demo_model.generate import stories
from tools.demo_model.tokenizer import BOS, BOS_ID, EOS, EOS_ID, train_on_stories, vocabulary

import pumice.tokenizers


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_on_stories(seed=1, vocab_size=1024, count=500)


def test_the_tokenizer_loses_nothing(tokenizer: Tokenizer):
    for text in ("Once upon a time", "Grüße,\n\n naïve 42 🦔  x's", next(stories(3)).text):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_tokenizer_is_the_same_for_the_same_seed(tokenizer: Tokenizer):
    assert train_on_stories(seed=1, vocab_size=1024, count=500).to_str() == tokenizer.to_str()


def test_pumice_tokenizes_as_the_tokenizer_was_trained(tokenizer: Tokenizer):
    tokens, merges = vocabulary(tokenizer)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(
            [3 if i in (BOS_ID, EOS_ID) else 1 for i in range(len(tokens))], np.int32
        ),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": BOS_ID,
        "tokenizer.ggml.eos_token_id": EOS_ID,
        "tokenizer.ggml.add_bos_token": True,
    }
    ours = pumice.tokenizers.from_metadata(metadata)

    assert tokens[BOS_ID] == BOS
    assert tokens[EOS_ID] == EOS
    for story in itertools.islice(stories(4), 50):
        assert ours.tokenize(story.text) == [BOS_ID, *tokenizer.encode(story.text).ids]


def test_packing_keeps_every_document_whole():
    lengths = [int(n) for n in np.random.default_rng(1).integers(3, 60, 500)]
    documents = [[BOS_ID, *([2 + i % 1000] * (n - 2)), EOS_ID] for i, n in enumerate(lengths)]

    rows = pack(documents, 64)

    found = []
    for row in rows.tolist():
        while row and row[0] == BOS_ID:
            end = row.index(EOS_ID) + 1
            found.append(row[:end])
            row = row[end:]
        assert set(row) <= {EOS_ID}
    assert sorted(found) == sorted(documents)
    assert sum(lengths) / rows.size > 0.9


def test_a_document_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        pack([[BOS_ID] * 10], 9)


def test_the_corpus_counts_what_is_to_be_predicted(tokenizer: Tokenizer):
    rows, n_predicted = encode_corpus(1, shards=2, count=10, tokenizer=tokenizer, length=513, processes=1)
    texts = [story.text for shard in (0, 1) for story in itertools.islice(stories(1, shard), 10)]

    assert n_predicted == sum(len(tokenizer.encode(text).ids) + 1 for text in texts)
    assert int((rows == BOS_ID).sum()) == 20


def test_the_entropy_is_that_of_the_stories_choices(tokenizer: Tokenizer):
    measured = entropy(seed=1, shard=3, count=200, tokenizer=tokenizer)
    written = [-story.log_p for story in itertools.islice(stories(1, 3), 200)]

    # the text is at least as probable as the one way in which it was written, and hardly more
    assert 0.99 * np.mean(written) < measured.nats_per_story <= np.mean(written)
    assert measured.perplexity == pytest.approx(np.exp(measured.nats_per_story / measured.tokens_per_story))
