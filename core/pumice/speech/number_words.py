"""Numbers as English words."""

from __future__ import annotations

_ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = ("", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion", " sextillion")
_MOST_DIGITS = 3 * len(_SCALES)


def number_words(number: str) -> str:
    """Return the words of digits such as ``"1204.5"``: one thousand, two hundred and four point five.

    A number too long for a name is read digit by digit.
    """
    whole, _, fraction = number.partition(".")
    point = f" point {_digits(fraction)}" if fraction else ""
    significant = whole.lstrip("0") or "0"
    return (_digits(whole) if len(significant) > _MOST_DIGITS else _cardinal(significant)) + point


def _digits(digits: str) -> str:
    return " ".join(_ONES[int(digit)] for digit in digits)


def _cardinal(digits: str) -> str:
    """Return the words of a whole number, its groups of three digits parted by commas."""
    if digits == "0":
        return _ONES[0]
    padded = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [int(padded[i : i + 3]) for i in range(0, len(padded), 3)]
    scales = _SCALES[: len(groups)][::-1]
    named = [(_below_thousand(group) + scale, group) for group, scale in zip(groups, scales, strict=True) if group]
    words = ", ".join(text for text, _ in named)
    if len(named) > 1 and 0 < groups[-1] < 100:  # "two thousand and five"
        head, _, last = words.rpartition(", ")
        return f"{head} and {last}"
    return words


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    return " and ".join([*words, *([_below_hundred(rest)] if rest else [])])


def _below_hundred(number: int) -> str:
    if number < len(_ONES):
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
