"""Tokenizers: ids are in the vocabulary, decode to the text if the kind is lossless, and cost linear time."""

from collections.abc import Iterable

from fuzz.draw import Draw
from fuzz.growth import check_linear, chosen
from pumice.tokenizers import Tokenizer
from tokenizer_fixtures import NAMES, fixture, small

MODULES = tuple(
    f"pumice.tokenizers.{name}"
    for name in (
        *("base", "bpe", "bpe_variants", "charsmap", "incremental", "lattice"),
        *("partition", "plamo2", "rwkv", "spm", "unigram", "wpm"),
    )
)
MAX_LEN = 400
_TEXTS = (
    "<s>", "</s>", "<|eot_id|>", "<tool>", "<dna>", "</dna>", "ACGT", "▁", " ", "  ", "\n\n", "\t", "the", "Ġ",
    "<0x0A>", "你好", "é", "e\u0301", "🚀", "\u200d", "\ufeff", "\ufffd", "\u3000", "İ", "ﬁ", "가", "à", "1234", "'s",
)  # fmt: skip
TOKENS = tuple(text.encode() for text in _TEXTS)

_KEEPS_TEXT = ("bpe", "spm", "spm-no-prefix", "gemma4", "rwkv")
"""Vocabularies that can spell every text, without SentencePiece's space mark."""


def seeds() -> Iterable[bytes]:
    for number, name in enumerate(NAMES):
        for text, _ in fixture(name)["cases"][:6]:
            yield bytes([number, 0]) + text.encode()[: MAX_LEN - 2]


def check(data: bytes) -> None:
    draw = Draw(data)
    name = draw.choice(NAMES)
    flags = draw.below(8)
    text = draw.rest().decode(errors="replace")
    tokenizer = small(name)
    ids = tokenizer.tokenize(text, add_special=bool(flags & 1), parse_special=bool(flags & 2))
    assert all(type(token) is int and 0 <= token < tokenizer.n_vocab for token in ids)
    whole = tokenizer.detokenize(ids, special=bool(flags & 4))
    decoder = tokenizer.decoder(special=bool(flags & 4))
    assert "".join([*map(decoder.push, ids), decoder.flush()]) == whole
    whole.encode()
    _check_special(tokenizer, text)
    if name in _KEEPS_TEXT and "▁" not in text:
        again = tokenizer.detokenize(tokenizer.tokenize(text, add_special=False, parse_special=False))
        assert again == text, (name, again)
    if chosen(data, 512):
        begin, unit = text[: len(text) // 3], text[len(text) // 3 :]
        check_linear(lambda text_of_size: tokenizer.tokenize(text_of_size), begin, unit)


def _check_special(tokenizer: Tokenizer, text: str) -> None:
    """Check that text without special parsing has no control tokens."""
    plain = tokenizer.tokenize(text, add_special=False, parse_special=False)
    controls = tokenizer.vocabulary.control.intersection(plain) - {tokenizer.unk}
    assert not controls, controls
