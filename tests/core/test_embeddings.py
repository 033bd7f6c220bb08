"""Embeddings of any decoder: pooling, batches of unequal lengths, requests beside generations, wrong arguments."""

import copy
import dataclasses
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.engine.messages import Encode
from tiny_encoders import MODELS as ENCODERS
from tiny_models import IDS, N_VOCAB
from tiny_zoo import ZOO
from tokenizer_fixtures import metadata, small

TEXTS = [IDS[:3], IDS, IDS[5:12], [1], (IDS * 5)[:100]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ZOO["gemma3"].write(tmp_path_factory.mktemp("model") / "gemma3.gguf")  # with windows


def load(path: Path, **options: Any) -> pumice.Model:
    return pumice.load(path, **{"backend": "numpy", "kv_type": "f32", "n_ctx": 256} | options)


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[pumice.Model]:
    with load(path) as model:
        yield model


def test_pooling(model: pumice.Model) -> None:
    rows = model.embed(TEXTS, normalize=False, pooling="none")
    assert [each.shape for each in rows] == [(len(text), 64) for text in TEXTS]
    expected = {"mean": [each.mean(0) for each in rows], "cls": [r[0] for r in rows], "last": [r[-1] for r in rows]}
    for pooling, vectors in expected.items():
        found = model.embed(TEXTS, normalize=False, pooling=pooling)
        assert (found.shape, found.dtype) == ((5, 64), np.float32)
        np.testing.assert_allclose(found, vectors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.embed(TEXTS, normalize=False), expected["last"], rtol=1e-4, atol=1e-5)


def test_vectors_are_cut_and_made_of_length_1(model: pumice.Model) -> None:
    whole, cut = model.embed(TEXTS), model.embed(TEXTS, dimensions=8)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(cut, whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True), rtol=1e-4)
    assert model.embed([]).shape == (0, 64)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([[]], {}, "a text to embed has no tokens"),
        ([[N_VOCAB]], {}, f"token id {N_VOCAB} is outside the vocabulary of {N_VOCAB}"),
        ([[1] * 257], {}, "257 tokens"),
        ([3.5], {}, "an input to embed must be a text, a list of token ids"),
        (7, {}, "embed takes a text or a list of texts, not int"),
        ([[1]], {"normalize": "yes"}, "normalize must be true or false, not 'yes'"),
        ([[1]], {"pooling": "max"}, "pooling must be one of none, mean, cls, last, not 'max'"),
        ([[1]], {"dimensions": 65}, "dimensions must be an integer from 1 to the model's 64, not 65"),
    ],
)
def test_wrong_arguments(model: pumice.Model, texts: Any, options: Any, message: str) -> None:
    with pytest.raises(pumice.RequestError, match=message):
        model.embed(texts, **options)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_models_tokenizers_and_streams_cannot_be_copied_and_say_so(model: pumice.Model, duplicate: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be pickled or copied, .* load '.*gemma3.gguf' in the other process"):
        duplicate(model)
    with pytest.raises(TypeError, match=r"a tokenizer cannot be pickled or copied, .*; load the model in the other"):
        duplicate(small("bpe"))
    with pytest.raises(TypeError, match=r"a stream cannot be pickled or copied, .*; send its text"):
        duplicate(model.stream([1], max_tokens=1))


# --- reranking, with a vocabulary


def reranker(folder: Path, name: str, **keys: Any) -> Path:
    vocabulary = metadata(name)
    n_vocab = len(vocabulary["tokenizer.ggml.tokens"])
    given = {f"/{key}": value for key, value in vocabulary.items() if key != "general.architecture"}
    model = dataclasses.replace(
        ENCODERS["neo-bert-rank"],
        metadata={**ENCODERS["neo-bert-rank"].metadata, **given, **keys, "vocab_size": n_vocab},
        shapes={**ENCODERS["neo-bert-rank"].shapes, "token_embd.weight": (n_vocab, 64)},
    )
    return model.write(folder / "rank.gguf")


@pytest.mark.parametrize("name", ["wpm", "unigram", "spm", "bpe"])
def test_a_text_is_cut_to_the_context_within_its_ends(tmp_path: Path, name: str) -> None:
    with load(reranker(tmp_path, name)) as model:
        text, tokenizer = "the dog sat " * 200, model.tokenizer
        inner = tokenizer.tokenize(text, add_special=False)
        whole = tokenizer.tokenize(text)
        n_before = next(i for i in range(9) if whole[i : i + len(inner)] == inner)
        before, after = whole[:n_before], whole[n_before + len(inner) :]
        cut, short, ids = model.media.prepare([text, "a dog", [1] * 999], truncate=True)
        assert cut.tokens == [*before, *inner[: model.n_ctx - len(before) - len(after)], *after]
        assert (short.tokens, ids.tokens) == (tokenizer.tokenize("a dog"), [1] * model.n_ctx)
        np.testing.assert_allclose(model.embed([text], truncate=True), model.embed([cut.tokens]), atol=1e-5)
        with pytest.raises(pumice.RequestError, match="n_ctx is"):
            model.embed([text])


@pytest.mark.parametrize(("name", "template"), [("wpm", None), ("unigram", None), ("bpe", "is {document} of {query}?")])
def test_a_pair_is_laid_out_as_the_file_says(tmp_path: Path, name: str, template: str | None) -> None:
    keys = {"/tokenizer.chat_template.rerank": template} if template else {}
    query, documents = "what is {document}", ["a cat", "the dog sat", "the dog sat " * 400]
    with load(reranker(tmp_path, name, **keys)) as model:
        tokenizer = model.tokenizer
        scores = model.rerank(query, documents, truncate=True)
        pairs = []
        for document in documents:
            a, b = (tokenizer.tokenize(text, add_special=False) for text in (query, document))
            pair, end = {
                "wpm": ([tokenizer.bos, *a, tokenizer.sep, *b], []),
                "unigram": ([*a, tokenizer.eos, *b, tokenizer.eos], [tokenizer.eos]),
                "bpe": [
                    tokenizer.tokenize(f"{text} of {query}?", add_special=False) for text in (f"is {document}", "")
                ],
            }[name]
            pairs.append(pair if len(pair) <= model.n_ctx else [*pair[: model.n_ctx - len(end)], *end])
        expected = model.engine.client.ask(Encode, pairs, "cls", scores=True).result()
        np.testing.assert_allclose(scores, [float(score[0]) for score in expected], rtol=1e-5)
        np.testing.assert_allclose(model.rerank(query, documents[:2]), scores[:2], rtol=1e-4)
        with pytest.raises(pumice.RequestError, match="n_ctx is"):
            model.rerank(query, documents)
        with pytest.raises(pumice.RequestError, match="n_ctx is"):
            model.rerank("what is " * 400, documents, truncate=True)
        for wrong in ("a cat", 5, None, [5], (each for each in documents)):
            with pytest.raises(pumice.RequestError, match="takes a query and a list of documents"):
                model.rerank(query, wrong)
