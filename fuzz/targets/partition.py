"""Special tokens in a text: the same result as a search for one token after the other, in linear time."""

from collections.abc import Iterable

from fuzz.draw import Draw
from fuzz.growth import check_linear, chosen
from pumice.tokenizers.partition import Partition

MODULES = ("pumice.tokenizers.partition",)
MAX_LEN = 300
TOKENS = (b"<s>", b"<|a|>", b"<|a|><|a|>", b"<<", b">>", b"<|", b"|>", b"\xc3\xa9", b" \t\n")

_SPACE = " \t\n\v\f\r"


def seeds() -> Iterable[bytes]:
    yield b"\3\0\3<s>\1\5<|a|>\2\2<<x<s>y <|a|> z<<<s>"
    yield b"\4\7\1a\3\2aa\1\3aaa\2\4aaaa\0aaaaaaaaaaaaa"


def check(data: bytes) -> None:
    draw = Draw(data)
    spellings, ordinary, left, right = {}, set(), set(), set()
    for token in range(draw.below(6)):
        flags = draw.below(8)
        spelling = draw.text(1 + draw.below(6))
        if spelling and spelling not in spellings:
            spellings[spelling] = token
            ordinary |= {token} if flags & 1 else set()
            left |= {token} if flags & 2 else set()
            right |= {token} if flags & 4 else set()
    ordered = sorted(spellings.items(), key=lambda pair: -len(pair[0].encode()))
    partition = Partition(ordered, ordinary, left, right)
    parse_special = draw.flag()
    text = draw.rest().decode(errors="replace")
    parts = partition.split(text, parse_special)
    assert "" not in parts
    assert parts == _one_after_the_other(partition, text, parse_special)
    if not left | right:
        names = {token: spelling for spelling, token in spellings.items()}
        assert "".join(part if isinstance(part, str) else names[part] for part in parts) == text
    if chosen(data, 1024):
        check_linear(lambda text_of_size: partition.split(text_of_size, parse_special), text[:3], text[3:])


def _one_after_the_other(partition: Partition, text: str, parse_special: bool) -> list[str | int]:
    """Search for each token, longest first, in the text left by the previous ones."""
    parts: list[str | int] = [text]
    for spelling, token in partition.spellings:
        if not parse_special and token not in partition.ordinary:
            continue
        cut: list[str | int] = []
        for part in parts:
            while isinstance(part, str) and (position := part.find(spelling)) >= 0:
                before, part = part[:position], part[position + len(spelling) :]
                cut += [before.rstrip(_SPACE) if token in partition.lstrip else before, token]
                part = part.lstrip(_SPACE) if token in partition.rstrip else part
            cut.append(part)
        parts = [part for part in cut if part != ""]
    return [part for part in parts if part != ""]
