"""Random texts that are hard to tokenize, for the comparison of tokenizers."""

import random
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
# First and last code points of Unicode blocks to draw from.
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x530, 0x5FF), (0x600, 0x6FF), (0x700, 0x8FF), (0x900, 0xDFF), (0xE00, 0xEFF), (0xF00, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x1CFF), (0x1D00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x2BFF), (0x2C00, 0x2FFF), (0x3000, 0x30FF),
    (0x3100, 0x33FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
    (0xFB00, 0xFDFF), (0xFE00, 0xFEFF), (0xFF00, 0xFFEF), (0xFFF0, 0xFFFF), (0x10000, 0x107FF), (0x10800, 0x11FFF),
    (0x12000, 0x1CFFF), (0x1D000, 0x1D7FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF), (0x1FB00, 0x1FBFF),
    (0x20000, 0x2A6DF), (0x2A700, 0x323AF), (0xE0000, 0xE01EF), (0xF0000, 0xF0100),
]  # fmt: skip
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'lL", "'d", "'D", "'x", "'", "\u2019s"]


class Texts:
    """An endless mixture: Unicode, code, digits, white space, long words, special tokens, pieces of the vocabulary."""

    def __init__(self, seed: int, special: Sequence[str], pieces: Sequence[str]) -> None:
        """``special``: spellings of special tokens; ``pieces``: texts of the vocabulary's tokens."""
        self.rng = random.Random(seed)
        self.special = list(special) or ["<s>"]
        self.pieces = list(pieces) or ["a"]
        self.lines = code_lines()
        self.makers: list[Callable[[], str]] = [
            self.one_block, self.any_block, self.any_character, self.code, self.code, self.digits, self.white_space,
            self.words, self.words, self.vocabulary, self.vocabulary, self.punctuation,
        ]  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        while True:
            if self.rng.random() < 0.005:
                yield self.long_word()
                continue
            parts = [self.rng.choice(self.makers)() for _ in range(self.rng.choice((1, 1, 2, 3)))]
            if self.rng.random() < 0.3:
                parts.insert(self.rng.randint(0, len(parts)), self.special_tokens())
            yield self.rng.choice(("", "", " ")).join(parts)

    def character(self, block: tuple[int, int]) -> str:
        return chr(self.rng.randint(*block))

    def one_block(self) -> str:
        block = self.rng.choice(BLOCKS)
        return "".join(self.character(block) for _ in range(self.rng.randint(1, 20)))

    def any_block(self) -> str:
        return "".join(self.character(self.rng.choice(BLOCKS)) for _ in range(self.rng.randint(1, 12)))

    def any_character(self) -> str:
        """Return any code point, assigned or not, including noncharacters and controls, but no surrogates."""
        codes = (self.rng.choice((self.rng.randint(0, 0xD7FF), self.rng.randint(0xE000, 0x10FFFF))) for _ in range(5))
        return "".join(map(chr, codes))

    def code(self) -> str:
        line = self.rng.choice(self.lines)
        return line[: self.rng.randint(1, 80)] + self.rng.choice(("", "\n", "\r\n"))

    def digits(self) -> str:
        signs = self.rng.choice(("0123456789", "0123456789", "0123456789 .,-", "٠١٢٣٤٥٦٧٨٩1", "½²³Ⅷ①1", "০১২௩௪5"))
        return "".join(self.rng.choices(signs, k=self.rng.randint(1, 14)))

    def white_space(self) -> str:
        kinds = self.rng.choice((" ", " \n", " \t\r\n", SPACES))
        return "".join(self.rng.choices(kinds, k=self.rng.choice((1, 2, 3, 5, 9, 40)))) + self.rng.choice(("", "a"))

    def words(self) -> str:
        def word() -> str:
            letters = self.rng.choice(
                (string.ascii_lowercase, "eéèêEÉ", "абвгдАБ", "αβγΑΒ", string.ascii_letters, "ıİßſǅ")
            )
            text = "".join(self.rng.choices(letters, k=self.rng.randint(1, 8)))
            text += self.rng.choice(("", "", "", "\u0301", "\u0308\u0323"))
            return text + (self.rng.choice(CONTRACTIONS) if self.rng.random() < 0.2 else "")

        return self.rng.choice((" ", "  ", "\n")).join(word() for _ in range(self.rng.randint(1, 6)))

    def punctuation(self) -> str:
        signs = self.rng.choice((string.punctuation, string.punctuation + " \n", "！？。、“”—…·«»", "$+<=>^`|~€£±×÷∑√"))
        return "".join(self.rng.choices(signs, k=self.rng.randint(1, 12)))

    def vocabulary(self) -> str:
        return "".join(self.rng.choices(self.pieces, k=self.rng.randint(1, 8)))

    def special_tokens(self) -> str:
        tokens = self.rng.choices(self.special, k=self.rng.choice((1, 1, 2)))
        return self.rng.choice(("", " ", "\n")).join(tokens)[self.rng.choice((0, 0, 0, 1)) :]

    def long_word(self) -> str:
        block = self.rng.choice(BLOCKS)
        unit = "".join(self.character(block) for _ in range(self.rng.choice((1, 2, 5, 100))))
        return (unit * 1000)[: self.rng.choice((100, 500, 1500))]


def code_lines() -> list[str]:
    """Return lines of Python's standard library."""
    lines = (Path(sys.modules["random"].__file__ or "").parent / "typing.py").read_text().splitlines()
    return [line for line in lines if line]
