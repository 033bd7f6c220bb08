"""Lines of a chat's answers, as a terminal emulator shows what is written."""

import pytest

from pumice.cli.chat.shown import ShownOnTerminal
from pumice.cli.chat.wrap import Wrapper


def shown(pieces: list[str], columns: int) -> list[str]:
    """Return the lines of a terminal that knows newline and the two codes that erase a word."""
    lines, column = [""], 0
    text = "".join(map(Wrapper(columns).add, pieces))
    while text:
        if text.startswith("\x1b["):
            back, _, text = text[2:].partition("D\x1b[K")
            lines[-1] = lines[-1][: -int(back)]
            column -= int(back)
            continue
        character, text = text[0], text[1:]
        if character == "\n":
            lines.append("")
            column = 0
        else:
            lines[-1] += character
            column += 1
        assert column < columns
    return lines


WORDS = "The quick brown fox jumps over the lazy dog and away"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("columns", [8, 13, 21, 80])
def test_words_are_kept_whole(size, columns):
    pieces = [WORDS[i : i + size] for i in range(0, len(WORDS), size)]
    lines = shown(pieces, columns)
    assert " ".join(line.strip() for line in lines) == WORDS
    assert len(lines) > 1 or columns == 80


def test_an_answer_controls_no_terminal(capfdbinary):
    shown = ShownOnTerminal()
    shown.reason("think \x1b[2J")
    shown.say("a\r\nb \x1b]52;c;eA==\x07")
    shown.end()
    written = capfdbinary.readouterr()[0].decode()
    assert written.replace("\x1b[2m", "").replace("\x1b[0m", "") == "think ?[2J\n\na\nb ?]52;c;eA==?\n"
