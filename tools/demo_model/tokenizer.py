"""The demo model's tokenizer: byte-level BPE like GPT-2's, trained on the stories, with BOS and EOS tokens."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .generate import stories

BOS, EOS = "<|story|>", "<|end|>"
BOS_ID, EOS_ID = 0, 1


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train on `texts`; the vocabulary is smaller than `vocab_size` only if no merges remain."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_on_stories(seed: int, vocab_size: int, count: int = 20_000) -> Tokenizer:
    """Train on `count` stories of a separate shard."""
    return train((story.text for story in itertools.islice(stories(seed, shard=-1), count)), vocab_size)


def vocabulary(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Return the tokens by id, and the merges by rank ("left right"), as GGUF stores them."""
    bpe = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
    return tokens, merges
