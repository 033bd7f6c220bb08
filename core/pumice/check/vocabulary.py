"""The vocabulary: tables that fit each other, texts that come back, tokens that texts reach, special tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from pumice.check.findings import Finding, Subject
from pumice.errors import TokenizerError
from pumice.gguf import GGUFFile
from pumice.tokenizers import Tokenizer
from pumice.tokenizers.vocabulary import PREFIX, numbers
from pumice.wording import counted_as

TEXTS = (
    "The quick brown fox jumps over 13 lazy dogs.\n\n  Twice!",
    "Größe, naïve, señor, Ελλάδα, Привет, שלום",
    "今日は世界 — 你好，世界。 안녕하세요 🙂👍🏽",
    "def f(x):\n\tif x >= 10_000:\n\t    return {'a': [1.5e-3, None]}  # ok",
)
"""Texts that a vocabulary of bytes gives back unchanged."""

REVERSIBLE = ("bpe", "spm", "rwkv")  # kinds of tokenizers that keep every character
SAMPLE = 2000  # tokens
MOST_UNREACHED = 0.1  # share of the sample that no text may produce
SPECIAL = re.compile(r"<[|｜][^<>|｜\s]+[|｜]>|<(?:start|end)_of_turn>|<(?:bos|eos)>")
"""The spelling of special tokens, which no text has by chance."""


def check_vocabulary(subject: Subject) -> Iterator[Finding]:
    """Find tables that do not fit, texts that change, and special tokens that are none."""
    yield from _tables(subject.file)
    try:
        tokenizer = subject.tokenizer
    except TokenizerError as error:
        yield Finding("error", "tokenizer", str(error))
        return
    if tokenizer is None:
        return
    if tokenizer.kind == "bpe" and not subject.file.metadata.get(f"{PREFIX}pre"):
        message = "the key is missing, so texts are split by a rule that may not be the model's; convert it again"
        yield Finding("warning", f"{PREFIX}pre", message)
    yield from _texts(tokenizer)
    yield from _reach(tokenizer)
    yield from _special(tokenizer)


def _tables(file: GGUFFile) -> Iterator[Finding]:
    n_vocab = file.metadata.count(f"{PREFIX}tokens")
    if not n_vocab:
        return
    for key in ("scores", "token_type"):
        if (count := file.metadata.count(PREFIX + key)) not in (0, n_vocab):
            yield Finding("error", PREFIX + key, f"has {counted_as(count, 'item')} for {n_vocab} tokens")
    for key, value in file.metadata.scalars().items():
        if key.startswith(PREFIX) and key.endswith("_token_id") and not (type(value) is int and 0 <= value < n_vocab):
            yield Finding("error", key, f"is {value}, but there are only {n_vocab} tokens")
    embeddings, stated = file.tensors.get("token_embd.weight"), file.metadata.get(f"{file.architecture}.vocab_size")
    if embeddings is not None and embeddings.shape[0] < n_vocab:
        yield Finding("error", "token_embd.weight", f"has {embeddings.shape[0]} rows for {n_vocab} tokens")
    if isinstance(stated, int) and stated != n_vocab and (embeddings is None or embeddings.shape[0] != stated):
        yield Finding("warning", f"{file.architecture}.vocab_size", f"is {stated}, but there are {n_vocab} tokens")
    if tokens_without_scores(file):
        yield Finding("error", f"{PREFIX}scores", "all are equal, so texts are not split into the model's tokens")


def tokens_without_scores(file: GGUFFile) -> bool:
    """Return True for a SentencePiece vocabulary whose scores, which order its merges, are all the same."""
    if file.metadata.get(f"{PREFIX}model") != "llama":
        return False
    scores = numbers(file.metadata, "scores", file.metadata.count(f"{PREFIX}tokens")) or []
    return len(set(scores)) < 2


def _texts(tokenizer: Tokenizer) -> Iterator[Finding]:
    if tokenizer.kind not in REVERSIBLE:
        return
    for text in TEXTS:
        back = tokenizer.detokenize(tokenizer.tokenize(text, add_special=False))
        if back != text:
            yield Finding("error", "vocabulary", f"{text[:24]!r} comes back from its tokens as {back[:24]!r}")
            return


def _reach(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Find out how many tokens their own text is split into."""
    vocabulary = tokenizer.vocabulary
    apart = vocabulary.special | vocabulary.byte | vocabulary.silent
    normal = [token for token in range(tokenizer.n_vocab) if token not in apart]
    if tokenizer.kind not in REVERSIBLE or not normal:
        return
    missed = []
    sample = np.random.default_rng(0).choice(normal, min(SAMPLE, len(normal)), replace=False).tolist()
    for token in sample:
        raw = tokenizer.token_bytes(token)
        text = raw.decode("utf-8", "replace")
        if "\ufffd" not in text and text and token not in tokenizer.tokenize_following(text):
            missed.append(token)
    if len(missed) > MOST_UNREACHED * len(sample):
        share = f"{100 * len(missed) / len(sample):.0f} % of the tokens are not found in their own texts"
        example = tokenizer.token_text(missed[0])
        yield Finding("error", "vocabulary", f"{share}, such as {example!r}: merges or scores are missing or wrong")


def _special(tokenizer: Tokenizer) -> Iterator[Finding]:
    vocabulary = tokenizer.vocabulary
    plain = [
        text
        for token, text in enumerate(vocabulary.tokens)
        if token not in vocabulary.special | vocabulary.silent and SPECIAL.fullmatch(text)
    ]
    if plain:
        what = f"{counted_as(len(plain), 'special token')} such as {plain[0]!r} of type normal"
        yield Finding("error", f"{PREFIX}token_type", f"has {what}: texts are not split at them, and they are shown")
    if not tokenizer.eog and tokenizer.kind != "wpm":
        yield Finding("error", f"{PREFIX}eos_token_id", "no token ends a text, so generation never stops by itself")
    elif tokenizer.eos is not None and tokenizer.eos not in vocabulary.special | vocabulary.silent:
        text = tokenizer.token_text(tokenizer.eos)
        yield Finding("error", f"{PREFIX}eos_token_id", f"is {tokenizer.eos}, the ordinary text {text!r}")
