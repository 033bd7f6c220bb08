"""Split a streamed answer into content, reasoning and tool calls.

Text that could still become a mark or a call is held back. Text that turns out not to be a call is content: no output
of a model is an error. The result does not depend on where the stream cuts the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pumice.chat.calls import WrittenCall
from pumice.chat.cut import cut_calls
from pumice.chat.formats import ChatFormat
from pumice.chat.incoming import IncomingText, Reading, literal, skip_space
from pumice.chat.pattern import Pattern
from pumice.chat.schemas import resolved, typed

AnswerPart = tuple[Literal["content", "reasoning"], str] | tuple[Literal["call"], WrittenCall]


@dataclass(frozen=True)
class _Mark:
    text: str
    kind: Literal["reasoning", "end", "silent", "section", "call"]


class ChatParser:
    """Splits one answer into its parts, in order. Calls are recognized only if the request has tools."""

    def __init__(
        self,
        format: ChatFormat,
        tools: Sequence[Mapping[str, Any]] = (),
        opening: str = "",
        separate_reasoning: bool = True,
        has_form: bool = False,
    ) -> None:
        """Initialize the parser.

        Args:
            format: chat format of the model.
            tools: checked tools of the request.
            opening: part of the answer in the prompt, which may have begun the reasoning or a mark.
            separate_reasoning: False returns reasoning and its marks as content.
            has_form: a grammar determines the content, in which marks are text.
        """
        self._has_form = has_form
        self._separates = separate_reasoning
        self._format = format
        self._schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
        self._marks = _marks(format, self._schemas)
        self._announcing = [mark for mark in self._marks if mark.kind in ("section", "call")]
        start = format.reasoning[0]
        self.in_reasoning = format.reasons_after(opening)
        self._source = IncomingText()
        self._source.text = begun(opening, [mark.text for mark in self._marks])
        self._goes_on = self.in_reasoning and bool(opening.rpartition(start)[2].strip())
        self._written = _PartWriter()
        self._in_form = False  # True from the first content that a grammar determines: all marks in it are text
        self._cut = False
        self._run = self._read()

    def push(self, text: str) -> list[AnswerPart]:
        """Return the parts that are certain once ``text`` has arrived."""
        self._source.text += text
        next(self._run, None)
        return self._written.take()

    def finish(self, cut: bool = False) -> list[AnswerPart]:
        """Return the remaining parts. ``cut``: the token limit ended the answer, so the last call may be partial."""
        self._source.ended, self._cut = True, cut
        next(self._run, None)
        return self._written.take()

    def _read(self) -> Generator[None, None, None]:
        position = (yield from self._read_reasoning(0)) if self.in_reasoning else 0
        position = yield from self._read_bare(position)
        while True:
            position, mark = yield from self._find(position, self._marks, self._write_content)
            after = position + len(mark.text) if mark else position
            if mark is None:
                self._written.end()
                return
            elif self._in_form or (mark.kind == "reasoning" and self._has_form and not self._written.nothing):
                self._written.content(mark.text)
                position = after
            elif mark.kind == "reasoning":
                position = yield from self._read_reasoning(after)
                position = yield from self._read_bare(position)
            elif mark.kind == "silent" or (mark.kind == "end" and self._written.nothing):
                self._written.structure()
                position = after
            else:
                called = yield from self._read_calls(mark, position, after, self._call)
                if called is None and self._take_cut(mark, position if mark.kind == "call" else after):
                    return
                if called is None:
                    self._written.content(self._source.text[position])
                position = position + 1 if called is None else called

    def _write_content(self, text: str) -> None:
        self._written.content(text)
        self._in_form = self._in_form or (self._has_form and bool(text.strip()))

    def _read_reasoning(self, position: int) -> Reading[int]:
        written, start = self._written, self._format.reasoning[0]
        self.in_reasoning = True
        if self._separates and not self._goes_on:
            written.structure()
        elif self._source.text[:position].endswith(start):
            written.content(start)
        self._goes_on = False
        end = _Mark(self._format.reasoning[1], "end")
        write = written.reasoning if self._separates else written.content
        while True:
            position, mark = yield from self._find(position, [end, *self._announcing], write)
            if mark is None or mark == end:
                break
            read = yield from self._read_last_calls(mark, position, end)
            if read is not None:
                self._call(read[0])
                self.in_reasoning = False
                return read[1]
            write(self._source.text[position])
            position += 1
        if self._separates:
            written.structure()
        elif mark:
            written.content(end.text)
        self.in_reasoning = mark is None
        return position + len(end.text) if mark else position

    def _read_last_calls(self, mark: _Mark, start: int, end: _Mark) -> Reading[tuple[list[WrittenCall], int] | None]:
        """Read calls inside reasoning, which some models forget to end; they count if the answer ends with them."""
        calls: list[WrittenCall] = []
        position = start
        while True:
            called = yield from self._read_calls(mark, position, position + len(mark.text), calls.extend)
            if called is None:
                break
            position = yield from skip_space(self._source, called)
            mark = next((m for m in self._announcing if self._source.text.startswith(m.text, position)), mark)
        closed = yield from literal(self._source, position, end.text)
        position = yield from skip_space(self._source, position if closed is None else closed)
        is_last = position == len(self._source.text) and all(call.name in self._schemas for call in calls)
        return (calls, position) if calls and is_last else None

    def _read_bare(self, position: int) -> Reading[int]:
        """Read calls without a mark, which must begin the content and name known tools.

        Return the position after them.
        """
        patterns = self._format.bare if self._has_form else self._format.bare_or_forgotten
        while patterns and self._schemas:
            read = yield from self._match(patterns, position)
            if read is None and self._cut:
                calls = cut_calls(patterns, self._source.text[position:])
                read = (calls, len(self._source.text)) if calls else None
            if read is None or not all(call.name in self._schemas for call in read[0]):
                return position
            self._call(read[0])
            position = read[1]
        return position

    def _read_calls(
        self, mark: _Mark, start: int, after: int, take: Callable[[Sequence[WrittenCall]], None]
    ) -> Reading[int | None]:
        """Pass the calls that ``mark`` announces to ``take``. Return the position after them, or None without calls."""
        if mark.kind == "call":
            patterns = [pattern for pattern in self._format.patterns if pattern.opening == mark.text]
            read = yield from self._match(patterns, start)
            if read is not None:
                take(read[0])
            return read and read[1]
        end = None
        while (read := (yield from self._match(self._format.patterns, after))) is not None:
            take(read[0])
            end = after = read[1]
        if end is None or not self._format.section[1]:
            return end
        closed = yield from literal(self._source, end, self._format.section[1])
        return end if closed is None else closed

    def _take_cut(self, mark: _Mark, start: int) -> bool:
        """Add the call that ``mark`` announces and that was cut off, if its name is complete.

        Return True if one began.
        """
        patterns = [p for p in self._format.patterns if mark.kind == "section" or p.opening == mark.text]
        calls = cut_calls(patterns, self._source.text[start:]) if self._cut else None
        self._call(calls or [])
        if calls is not None:
            self._written.structure()
        return calls is not None

    def _match(self, patterns: Sequence[Pattern], position: int) -> Reading[tuple[list[WrittenCall], int] | None]:
        for pattern in patterns:
            read = yield from pattern.read(self._source, position)
            if read is not None:
                return read
        return None

    def _call(self, calls: Sequence[WrittenCall]) -> None:
        for call in calls:
            self._written.call(_typed(call, self._schemas.get(call.name, {})))

    def _find(
        self, position: int, marks: Sequence[_Mark], write: Callable[[str], None]
    ) -> Reading[tuple[int, _Mark | None]]:
        """Write text up to the next mark or the end. Return the position and the longest mark that begins there."""
        source, first = self._source, re.compile("[" + "".join(re.escape(mark.text[0]) for mark in marks) + "]")
        longest = max(len(mark.text) for mark in marks)
        while True:
            end, result = position, None
            while end < len(source.text) and result is None:
                match = first.search(source.text, end)
                if match is None:
                    end = len(source.text)
                    break
                end = match.start()
                rest = source.text[end : end + longest]
                begun = [mark for mark in marks if mark.text != rest and mark.text.startswith(rest)]
                if begun and not source.ended:
                    break
                result = max((m for m in marks if rest.startswith(m.text)), key=lambda m: len(m.text), default=None)
                if result is None and self._drops(begun):
                    write(source.text[position:end])
                    self._written.structure()
                    return len(source.text), None
                end += result is None
            write(source.text[position:end])
            position = end
            if result or source.ended:
                return position, result
            yield

    def _drops(self, begun: Sequence[_Mark]) -> bool:
        """Return True if the token limit cut a mark of a call or the end of reasoning, whose beginning is not text."""
        if self.in_reasoning and self._separates:
            return self._cut and bool(begun)
        return self._cut and not self._has_form and any(mark in self._announcing for mark in begun)


class _PartWriter:
    """Collects finished parts. White space between content and structure is dropped."""

    def __init__(self) -> None:
        self._parts: list[AnswerPart] = []
        self._held = ""  # trailing white space, kept if more text follows
        self._fresh = False  # True right after structure
        self.nothing = True  # until the first part

    def take(self) -> list[AnswerPart]:
        parts, self._parts = self._parts, []
        return parts

    def content(self, text: str) -> None:
        self._write("content", text)

    def reasoning(self, text: str) -> None:
        self._write("reasoning", text)

    def call(self, call: WrittenCall) -> None:
        self.structure()
        self.nothing = False
        self._parts.append(("call", call))

    def structure(self) -> None:
        self._held, self._fresh = "", True

    def end(self) -> None:
        if self._held:
            self._parts.append(("content", self._held))

    def _write(self, kind: Literal["content", "reasoning"], text: str) -> None:
        text = self._held + (text.lstrip() if self._fresh else text)
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown:
            self._fresh = self.nothing = False
            self._parts.append((kind, shown))


def _marks(format: ChatFormat, tools: Collection[str]) -> list[_Mark]:
    begin, end = format.reasoning
    marks = [
        _Mark(begin, "reasoning"),
        *(_Mark(text, "silent") for text in format.silent_for(tools)),
        _Mark(end, "end"),
    ]
    if tools:
        openings = dict.fromkeys(pattern.opening for pattern in format.patterns)
        marks += [_Mark(text, "call") for text in openings if text]
        marks += [_Mark(format.section[0], "section")] if format.section[0] else []
    return marks


def begun(opening: str, marks: Sequence[str]) -> str:
    """Return the end of the prompt that begins a mark; it cannot start with a letter or digit."""
    sizes = range(min(max(map(len, marks), default=1) - 1, len(opening)), 0, -1)
    ends = (opening[-size:] for size in sizes if not opening[-size].isalnum())
    return next((end for end in ends if any(mark.startswith(end) and mark != end for mark in marks)), "")


def _typed(call: WrittenCall, schema: Mapping[str, Any]) -> WrittenCall:
    """Return the call with its unquoted arguments converted as the tool's schema says."""
    schema = resolved(schema)
    properties = schema.get("properties")
    parts = properties if isinstance(properties, Mapping) else {}
    arguments = {
        key: typed(value, parts.get(key), schema) if key in call.texts else value
        for key, value in call.arguments.items()
    }
    return replace(call, arguments=arguments, texts=frozenset())
