"""Markdown as lines of a terminal, in leaves: the smallest pieces that later text does not change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from pumice.cli.output import on_terminal

HIGHLIGHT_LINES: Final = 100
"""Lines of a block of code, up to the one to show, that its highlighting depends on."""

_THEME = "ansi_dark"  # the sixteen colours of the terminal
_QUOTE, _BULLETS = "│ ", "•◦▪"
_MAX_DEPTH = 12  # of lists and quotes whose indentation is shown
_STYLES = {"strong": Style(bold=True), "em": Style(italic=True), "s": Style(strike=True)}
_CODE, _HEADING, _DIM = Style(color="cyan"), Style(bold=True), Style(dim=True)
_MAX_HIGHLIGHTED = 8000  # characters of code
_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("reference")  # a definition is shown


@dataclass(frozen=True)
class Leaf:
    """A paragraph, heading, line of code, table, rule, or HTML as it is written.

    Attributes:
        kind: ``text``, ``heading``, ``label`` of a block of code, ``code``, ``html``, ``table`` or ``rule``.
        source: Markdown of a text or heading; for a line of code, the last lines of its block up to it.
        first: Beginning of the first line, such as a bullet.
        rest: Beginning of further lines.
        gap: An empty line stands before the leaf, unless it is the first.
        language: Language of a block of code.
        rows: Cells of a table, the first row being its head.
    """

    kind: str
    source: str = ""
    first: str = ""
    rest: str = ""
    gap: bool = True
    language: str = ""
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Document:
    """Leaves of a text.

    Attributes:
        leaves: All leaves, in order.
        last_line: Line of the source at which the last block begins, which alone can still change.
        n_finished: Number of leaves before that block.
        n_blocks: Number of blocks of code before that block that ``/copy`` counts.
    """

    leaves: list[Leaf]
    last_line: int
    n_finished: int
    n_blocks: int


def parse(source: str, n_blocks: int = 0) -> Document:
    """Return the leaves of a Markdown text. ``n_blocks`` blocks of code stand before it."""
    walk = _Walk(n_blocks)
    tokens = _PARSER.parse(source)
    last_line = n_finished = 0
    n_before = n_blocks
    for i, token in enumerate(tokens):
        if token.level == 0 and token.nesting >= 0 and token.map:
            last_line, n_finished, n_before = token.map[0], len(walk.leaves), walk.n_blocks
        walk.take(token, tokens[i + 1] if i + 1 < len(tokens) else None)
    return Document(walk.leaves, last_line, n_finished, n_before)


@dataclass
class _Walk:
    """Makes leaves of block tokens."""

    n_blocks: int
    leaves: list[Leaf] = field(default_factory=list)
    _prefixes: list[str] = field(default_factory=list)  # of the open lists' items and quotes
    _markers: list[str] = field(default_factory=list)  # in place of the last prefixes, once
    _lists: list[int | None] = field(default_factory=list)  # the next number of each open list; None: bullets
    _kind: str = "text"
    _begins: bool = False  # the next item is the first of a list or quote that is in no other
    _rows: list[tuple[str, ...]] = field(default_factory=list)
    _cells: list[str] = field(default_factory=list)

    def take(self, token: Token, following: Token | None) -> None:
        """Take the next token of the text."""
        match token.type:
            case "bullet_list_open":
                self._begins = self._begins or not self._prefixes
                self._lists.append(None)
            case "ordered_list_open":
                self._begins = self._begins or not self._prefixes
                self._lists.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._open_item(following)
            case "blockquote_open":
                self._begins = self._begins or not self._prefixes
                self._open(_QUOTE, _QUOTE)
            case "list_item_close" | "blockquote_close":
                self._prefixes.pop()
                del self._markers[len(self._prefixes) :]
            case "heading_open":
                self._kind = "heading"
            case "paragraph_open":
                self._kind = "text"
            case "th_open" | "td_open":
                self._kind = "cell"
            case "inline" if self._kind == "cell":
                self._cells.append(token.content)
            case "inline":
                self._add(Leaf(self._kind, token.content))
            case "fence" | "code_block":
                self._take_code(token)
            case "html_block":
                self._add(Leaf("html", token.content.rstrip("\n")))
            case "hr":
                self._add(Leaf("rule"))
            case "table_open":
                self._rows = []
            case "tr_open":
                self._cells = []
            case "tr_close":
                self._rows.append(tuple(self._cells))
            case "table_close":
                self._add(Leaf("table", rows=tuple(self._rows)))

    def _open(self, first: str, rest: str) -> None:
        self._prefixes.append(rest)
        self._markers = [*self._markers, *self._prefixes[len(self._markers) : -1], first]

    def _open_item(self, following: Token | None) -> None:
        number = self._lists[-1]
        depth = sum(item_number is None for item_number in self._lists) - 1
        marker = f"{_BULLETS[min(depth, 2)]} " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1
        self._open(marker, " " * len(marker))
        if following is not None and following.type == "list_item_close":
            self._add(Leaf("text"))

    def _take_code(self, token: Token) -> None:
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        label = language
        if token.type == "fence" and _QUOTE not in self._prefixes:
            self.n_blocks += 1
            label = f"{language}  /copy {self.n_blocks}".strip()
        self._add(Leaf("label", label))
        lines = token.content.removesuffix("\n").split("\n")
        for i in range(len(lines) if token.content else 0):
            context = "\n".join(lines[max(0, i + 1 - HIGHLIGHT_LINES) : i + 1])
            self._add(Leaf("code", context, gap=False, language=language))

    def _add(self, leaf: Leaf) -> None:
        rest = self._prefixes[:_MAX_DEPTH]
        first = (self._markers + self._prefixes[len(self._markers) :])[:_MAX_DEPTH]
        gap = leaf.gap and (self._begins or not self._markers)  # whether a list is loose is only known at its end
        self._markers, self._begins = [], False
        self.leaves.append(replace(leaf, first="".join(first), rest="".join(rest), gap=gap))


class Renderer:
    """Renders leaves as lines with the codes of a terminal's colours, each shorter than the terminal's.

    Args:
        columns: Width of the terminal.
    """

    def __init__(self, columns: int) -> None:
        self._width = max(columns - 1, 8)  # terminals treat the last column differently
        self._console = Console(file=StringIO(), force_terminal=True, width=self._width, highlight=False)

    def lines(self, leaf: Leaf) -> list[str]:
        """Return the lines of a leaf, without the gap before it."""
        cut = self._width // 2  # of deep lists
        first, rest = leaf.first[:cut], leaf.rest[:cut]
        with self._console.capture() as capture:
            if leaf.kind == "table":
                self._console.print(_table(leaf), width=self._width - len(rest))
            else:
                self._console.print(self._text(leaf), width=self._width - max(len(first), len(rest)))
        lines = capture.get().removesuffix("\n").split("\n")
        if leaf.kind == "table":
            lines = [line.rstrip() for line in lines if line.strip()]
        return [f"{rest if i else first}{line}" for i, line in enumerate(lines)]

    def _text(self, leaf: Leaf) -> Text:
        match leaf.kind:
            case "heading":
                return inline(leaf.source, _HEADING)
            case "label":
                return Text(on_terminal(leaf.source), style=_DIM)
            case "code":
                return _code(leaf)
            case "html":
                return Text(on_terminal(leaf.source))
            case "rule":
                return Text("─" * (self._width // 2), style=_DIM)
        return inline(leaf.source)


def inline(source: str, style: Style | None = None) -> Text:
    """Return the text of a paragraph, heading or cell; the address of a link follows its words.

    No character of it controls the terminal, also where Markdown decodes one, as in ``<http://a/%1b[31m>``.
    """
    text = Text(style=style or "")
    styles: list[Style] = []
    links: list[tuple[int, str]] = []

    def append(content: str, style: Style | None = None) -> None:
        text.append(on_terminal(content), style)

    for token in _PARSER.parseInline(source)[0].children or []:
        kind = token.type
        if kind in ("softbreak", "hardbreak"):
            append(" " if kind == "softbreak" else "\n")
        elif kind == "code_inline":
            append(token.content, Style.combine([_CODE, *styles]))
        elif kind == "image":
            append(f"[{token.content}]({token.attrGet('src')})")
        elif kind == "link_open":
            links.append((len(text), str(token.attrGet("href") or "")))
        elif kind == "link_close":
            begin, address = links.pop()
            if text.plain[begin:] not in (address, address.removeprefix("mailto:")):
                append(f" ({address})", _DIM)
        elif kind.endswith("_open"):
            styles.append(_STYLES.get(kind.removesuffix("_open"), Style()))
        elif kind.endswith("_close"):
            styles.pop()
        else:
            append(token.content, Style.combine([Style(), *styles]))
    return text


def _table(leaf: Leaf) -> Table:
    head, *rows = leaf.rows
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for cell in head:
        table.add_column(inline(cell))
    for row in rows:
        table.add_row(*map(inline, row))
    return table


def _code(leaf: Leaf) -> Text:
    source = on_terminal(leaf.source)
    last = source.rpartition("\n")[2]
    if not leaf.language or len(source) > _MAX_HIGHLIGHTED:
        return Text(last)
    syntax = Syntax(source, leaf.language, theme=_THEME, background_color="default")
    highlighted = syntax.highlight(source)
    line = highlighted[highlighted.plain.removesuffix("\n").rfind("\n") + 1 :] if last else Text()
    line.rstrip()
    return line if line.plain == last.rstrip() else Text(last)  # a lexer may change white space
