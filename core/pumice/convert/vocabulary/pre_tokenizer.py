"""Identify the pre-tokenizer of a ``tokenizer.json``: the one that splits difficult text into the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import zip_longest
from operator import eq
from typing import TYPE_CHECKING

from pumice.tokenizers import PRE_TOKENIZERS, PreTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WordSpans = list[tuple[int, int]]
"""Start and end of each word of a text."""

# Text on which pre-tokenizers differ: white space, digits, contractions, capitals, marks, scripts, emoji, punctuation.
HARD_TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\r\n  x  y \n z\t\tq   \n\n\n   end",
    "1 22 333 4444 55555 666666 7777777 88888888 3.14 1,000,000 12a3b ½ ٣٤٥ ²³ 10-2020 1/2 2:30 v1.22.333",
    "I'm you're he's we'll they'd 'tis DON'T I'LL 'RE x'S ſ'ſ 'VE''s '' ' `quoted` \"double\" ‘single’ “curly”",
    "camelCase PascalCase HTTPServer snake_case SCREAMING_CASE kebab-case iPhone5s abcDEF ABCdef Éclair ÀÉÎõü naïveté",
    "परीक्षा हिन्दी ภาษาไทย កាន់តែពិសេស العربية עברית Ελληνικά Русский ქართული հայերեն မြန်မာ ລາວ தமிழ் বাংলা e\u0301 a\u030a",
    "我想在apple工作1314151天～ 東京タワー、ﾊﾝｶｸ 한국어 조선글 ㄱㄴㄷ ㄅㄆㄇ 〇〡 々仝 㐀㐁 ，。！？「」『』",
    "🚀🚀 👩‍👩‍👧 🇩🇪 ✅ ☃️ ©®™ €£¥ ≠≤∑ → ∞ \u00a0nbsp\u2003em\u3000full\u200bzero\ufeffbom",
    "!!! ??? ... ;;; --- ___ === +++ <<< >>> ~~~ ^^^ /// \\\\\\ ||| ((( ))) [[[ ]]] {{{ }}} ###",
    "$$$ %%% &&& *** @@@ :::",
    "a.b,c;d:e!f?g(h)i[j]k{l}m<n>o/p\\q|r-s_t+u=v*w&x^y%z$1#2@3 !a ?b .c ,d (e [f {g <h /i $j #k @l &m +n =o ~p",
    "http://example.org/a/b?c=d&e=f#g user@mail.com /usr/local/bin C:\\Windows\\x.dll",
    "def f(x):\n    return x**2  # ok\n",
    "</s><|im_end|> [INST] <<SYS>> <sentinel:1> IMGIMGABCZ  double  space   triple",
    "four    \u2028line\u2029para\x85nel\x0b\x0c",
)


def recognise(
    tokenizer: Tokenizer, preferred: Sequence[str] = (), known: Mapping[str, PreTokenizer] = PRE_TOKENIZERS
) -> str | None:
    """Return the name of the pre-tokenizer that splits text like ``tokenizer``; None without one.

    Of several, those with the same handling of merges come first; among them one of ``preferred``, else one with the
    same handling of BOS.
    """
    words = [_words(tokenizer.pre_tokenizer, text) for text in HARD_TEXT]
    ignore_merges = bool(getattr(tokenizer.model, "ignore_merges", False))
    same = [name for name, row in known.items() if row.byte_level and _cuts(row, words)]
    exact = [name for name in same if known[name].ignore_merges == ignore_merges] or same
    if match := next((name for name in preferred if name in exact), None):
        return match
    alike = [name for name in exact if known[name].add_bos == _adds_bos(tokenizer)] or exact
    return next(iter(alike), None)


def nearest(tokenizer: Tokenizer, known: Mapping[str, PreTokenizer] = PRE_TOKENIZERS) -> str:
    """Describe, for messages, how the most similar pre-tokenizer differs from the one of ``tokenizer``."""
    ours = [_words(tokenizer.pre_tokenizer, text) for text in HARD_TEXT]
    cut = {
        name: [_hard_words(row.patterns, text) for text in HARD_TEXT] for name, row in known.items() if row.byte_level
    }
    name = max(cut, key=lambda name: sum(map(eq, cut[name], ours)))
    text, own, its = next(row for row in zip(HARD_TEXT, ours, cut[name], strict=True) if row[1] != row[2])
    both = ((text[slice(*a)], text[slice(*b)]) for a, b in zip_longest(own, its, fillvalue=(0, 0)) if a != b)
    word, other = next(both)
    return f"the most similar one, {name!r}, splits off {other!r} instead of {word!r}"


def _adds_bos(tokenizer: Tokenizer) -> bool:
    """Return True if the tokenizer adds a token at the beginning of a text."""
    whole, plain = (tokenizer.encode("a", add_special_tokens=special).ids for special in (True, False))
    return whole[:1] != plain[:1]


def _cuts(row: PreTokenizer, words: list[WordSpans]) -> bool:
    """Return True if a pre-tokenizer splits the difficult text into these words."""
    return all(_hard_words(row.patterns, text) == own for text, own in zip(HARD_TEXT, words, strict=True))


@cache
def _hard_words(patterns: Sequence[str], text: str) -> WordSpans:
    """Return the words of a difficult text by a pre-tokenizer's patterns."""
    from tokenizers import Regex, pre_tokenizers

    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return _words(
        pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), text
    )


def _words(pre_tokenizer: object, text: str) -> WordSpans:
    """Return start and end of each word; one word without a pre-tokenizer."""
    if pre_tokenizer is None:
        return [(0, len(text))]
    return [span for _, span in pre_tokenizer.pre_tokenize_str(text)]  # type: ignore[attr-defined]
