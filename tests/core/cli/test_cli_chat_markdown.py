"""Markdown of a chat's answers, as a terminal emulator shows what is written."""

import random
import re

import pytest

pytest.importorskip("rich")
pytest.importorskip("markdown_it")


from pumice.cli.chat.markdown import Renderer, parse
from pumice.cli.chat.streaming_markdown import StreamingMarkdown

TEXT = """\
# A *title*

One **bold word** and `code`, a [link](https://example.org/x), ~~struck~~ and an
entity &amp; more words so that the line is wrapped somewhere in its middle.
Heading below
---

- first
- second **item** with words that go on to the next line of it
  1. nested one
  2. nested two

  > quoted inside
- third

  ```python
  def f(x):
      return "a string" if x else None
  ```

> A quote of
> two lines

| name | value |
| --- | --- |
| `a` | **1** |
| b | 22 |

***not a rule*** but strong

***

    indented code

```
plain ** code
```

<div>html</div>

[ref]: https://example.org/defined

7. seven
8. eight

The end, with 日本語の文章 and an open **mark"""
LONG = "Words of a **very** long paragraph, " * 14


class Screen:
    """A terminal: lines, of which those above the last ``rows`` do not change any more."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.n_erased = 0

    def write(self, text: str) -> None:
        for code, argument, kind, character in re.findall(r"(\x1b\[([\d;]*)([A-Za-z]))|([\s\S])", text):
            if code:
                self._control(int(argument or 1) if kind != "m" else 0, kind)
            elif character == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif character == "\r":
                self.column = 0
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1
                assert self.column < self.columns

    def _control(self, n: int, kind: str) -> None:
        if kind == "A":
            self.row -= n
            assert self.row >= len(self.lines) - self.rows, "above the screen"
        elif kind == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif kind == "J":
            self.lines[self.row] = self.lines[self.row][: self.column]
            del self.lines[self.row + 1 :]
            self.n_erased += 1
        else:
            assert kind == "m", kind


def streamed(pieces: list[str], columns: int = 60, rows: int = 100) -> Screen:
    screen = Screen(columns, rows)
    markdown = StreamingMarkdown(screen.write, columns, rows)
    for piece in pieces:
        markdown._next_update = 0  # every update, as if none took time
        markdown.add(piece)
    markdown.end()
    return screen


def words(text: str) -> str:
    return re.sub(r"[^\w&*<>]+", "", text)


def plain(text: str) -> str:
    screen = Screen(61, 1000)
    renderer = Renderer(61)
    for leaf in parse(text).leaves:
        screen.write("".join(f"{line}\n" for line in renderer.lines(leaf)))
    return "\n".join(screen.lines)


def test_a_text_longer_than_the_screen_is_complete_and_shown_once():
    for text in (TEXT, f"{LONG}\n\n- {LONG}"):
        screen = streamed(re.findall(r"\S+\s*|\s+", text), rows=5)
        assert words("".join(screen.lines)) == words(plain(text))


def test_random_texts_are_complete():
    random.seed(4)
    marks = [
        "*",
        "**",
        "`",
        "```\n",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "> ",
        "# ",
        "| ",
        "---\n",
        "  ",
        "    ",
        "[x](y)",
        "<b>",
    ]
    for _ in range(60):
        pieces = [random.choice([*marks, "word ", "other "]) for _ in range(40)]
        screen = streamed(pieces, rows=30)
        shown = "".join(screen.lines)
        for word in ("word", "other"):
            assert shown.count(word) == "".join(pieces).count(word), pieces


def test_a_text_controls_no_terminal():
    screen = streamed(["a \x1b]52;c;eA==\x07 b \x9b2J c\x08\r d"])
    assert screen.lines[0].split() == ["a", "?]52;c;eA==?", "b", "?2J", "c?", "d"]


@pytest.mark.parametrize("address", ["http://a/%1b[31mred", "http://a/%1b]0;pwn%07", "http://a/%C2%9B31m"])
@pytest.mark.parametrize("form", ["<{}>", "# <{}>", "[x]({})", "![x]({})", "| a |\n| --- |\n| <{}> |"])
def test_a_decoded_address_does_not_control_the_terminal(address, form):
    renderer = Renderer(100)
    lines = [line for leaf in parse(form.format(address)).leaves for line in renderer.lines(leaf)]
    assert "http://a/" in "".join(lines)
    unstyled = re.sub(r"\x1b\[(0|1|2|1;2)m", "", "".join(lines))  # bold and dim
    assert re.search(r"[\x00-\x1f\x7f-\x9f]", unstyled) is None
