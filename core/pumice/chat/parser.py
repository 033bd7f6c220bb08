"""An answer, taken apart while it comes: content, reasoning and tool calls.

Text that could still become a mark, or a call, is held back. What is no call after all is content: nothing that a model
writes is an error. However the text is cut, the same comes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pumice.chat.calls import Call
from pumice.chat.cut import cut_calls
from pumice.chat.formats import ChatFormat
from pumice.chat.pattern import Pattern
from pumice.chat.schemas import resolved, typed
from pumice.chat.source import Reading, Source, literal, skip_space

Part = tuple[Literal["content", "reasoning"], str] | tuple[Literal["call"], Call]


@dataclass(frozen=True)
class _Mark:
    text: str
    kind: Literal["reasoning", "end", "silent", "section", "call"]


class ChatParser:
    """The parts of one answer, in their order. Calls are looked for only where there are tools."""

    def __init__(
        self,
        format: ChatFormat,
        tools: Sequence[Mapping[str, Any]] = (),
        opening: str = "",
        separate_reasoning: bool = True,
        has_form: bool = False,
    ) -> None:
        """``opening``: what the prompt has written of the answer; it may have begun the reasoning, or a mark.

        ``separate_reasoning`` False: it is content, and so are its marks.
        ``has_form``: a grammar decides the content, in which the mark of reasoning is text.
        """
        self._has_form = has_form
        self._separates = separate_reasoning
        self._format = format
        self._schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
        self._marks = _marks(format, self._schemas)
        self._announcing = [mark for mark in self._marks if mark.kind in ("section", "call")]
        start = format.reasoning[0]
        self.in_reasoning = format.reasons_after(opening)
        self._source = Source()
        self._source.text = begun(opening, [mark.text for mark in self._marks])
        self._goes_on = self.in_reasoning and bool(opening.rpartition(start)[2].strip())
        self._written = _Written()
        self._cut = False
        self._run = self._read()

    def push(self, text: str) -> list[Part]:
        """The parts that became certain with ``text``."""
        self._source.text += text
        next(self._run, None)
        return self._written.take()

    def finish(self, cut: bool = False) -> list[Part]:
        """The rest, when no more text comes; ``cut``: the model would have gone on, so the last call may be partial."""
        self._source.ended, self._cut = True, cut
        next(self._run, None)
        return self._written.take()

    def _read(self) -> Generator[None, None, None]:
        position = (yield from self._read_reasoning(0)) if self.in_reasoning else 0
        position = yield from self._read_bare(position)
        while True:
            position, mark = yield from self._find(position, self._marks, self._written.content)
            after = position + len(mark.text) if mark else position
            if mark is None:
                self._written.end()
                return
            elif mark.kind == "reasoning" and self._has_form and not self._written.nothing:
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

    def _read_last_calls(self, mark: _Mark, at: int, end: _Mark) -> Reading[tuple[list[Call], int] | None]:
        """Calls in reasoning, which count where the answer ends with them: some models forget to end it before."""
        calls: list[Call] = []
        position = at
        while True:
            called = yield from self._read_calls(mark, position, position + len(mark.text), calls.extend)
            if called is None:
                break
            position = yield from skip_space(self._source, called)
            mark = next((each for each in self._announcing if self._source.text.startswith(each.text, position)), mark)
        closed = yield from literal(self._source, position, end.text)
        position = yield from skip_space(self._source, position if closed is None else closed)
        is_last = position == len(self._source.text) and all(call.name in self._schemas for call in calls)
        return (calls, position) if calls and is_last else None

    def _read_bare(self, position: int) -> Reading[int]:
        """Calls without a mark, which are only looked for where the content begins, and only of known tools."""
        patterns = [pattern for pattern in self._format.patterns if not pattern.opening]
        if not patterns or not self._schemas or self._format.section[0]:
            return position
        read = yield from self._match(patterns, position)
        if read is None and self._cut:
            calls = cut_calls(patterns, self._source.text[position:])
            read = (calls, len(self._source.text)) if calls else None
        if read is None or not all(call.name in self._schemas for call in read[0]):
            return position
        self._call(read[0])
        return read[1]

    def _read_calls(
        self, mark: _Mark, at: int, after: int, take: Callable[[Sequence[Call]], None]
    ) -> Reading[int | None]:
        """``take`` the calls that ``mark`` announces; where they end, or None if there are none."""
        if mark.kind == "call":
            patterns = [pattern for pattern in self._format.patterns if pattern.opening == mark.text]
            read = yield from self._match(patterns, at)
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

    def _take_cut(self, mark: _Mark, at: int) -> bool:
        """Take the call that ``mark`` announces and in which the text was cut, once its name is complete."""
        patterns = [p for p in self._format.patterns if mark.kind == "section" or p.opening == mark.text]
        calls = cut_calls(patterns, self._source.text[at:]) if self._cut else None
        self._call(calls or [])
        if calls is not None:
            self._written.structure()
        return calls is not None

    def _match(self, patterns: Sequence[Pattern], position: int) -> Reading[tuple[list[Call], int] | None]:
        for pattern in patterns:
            read = yield from pattern.read(self._source, position)
            if read is not None:
                return read
        return None

    def _call(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._written.call(_typed(call, self._schemas.get(call.name, {})))

    def _find(
        self, position: int, marks: Sequence[_Mark], write: Callable[[str], None]
    ) -> Reading[tuple[int, _Mark | None]]:
        """Write text up to the next mark, the longest of those that begin there, or to the end."""
        source, first = self._source, re.compile("[" + "".join(re.escape(mark.text[0]) for mark in marks) + "]")
        longest = max(len(mark.text) for mark in marks)
        while True:
            at, found = position, None
            while at < len(source.text) and found is None:
                start = first.search(source.text, at)
                if start is None:
                    at = len(source.text)
                    break
                at = start.start()
                rest = source.text[at : at + longest]
                if not source.ended and any(mark.text != rest and mark.text.startswith(rest) for mark in marks):
                    break
                found = max((m for m in marks if rest.startswith(m.text)), key=lambda m: len(m.text), default=None)
                at += found is None
            write(source.text[position:at])
            position = at
            if found or source.ended:
                return position, found
            yield


class _Written:
    """Parts on their way out. White space between content and structure belongs to neither."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._held = ""  # white space that more text may follow
        self._fresh = False  # right after structure
        self.nothing = True  # came yet

    def take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def content(self, text: str) -> None:
        self._write("content", text)

    def reasoning(self, text: str) -> None:
        self._write("reasoning", text)

    def call(self, call: Call) -> None:
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
    """The end of the prompt with which a mark begins; a letter is none."""
    sizes = range(min(max(map(len, marks), default=1) - 1, len(opening)), 0, -1)
    ends = (opening[-size:] for size in sizes if not opening[-size].isalnum())
    return next((end for end in ends if any(mark.startswith(end) and mark != end for mark in marks)), "")


def _typed(call: Call, schema: Mapping[str, Any]) -> Call:
    """The call with each argument that was written as plain text read as its schema says."""
    schema = resolved(schema)
    properties = schema.get("properties")
    parts = properties if isinstance(properties, Mapping) else {}
    arguments = {
        key: typed(value, parts.get(key), schema) if key in call.texts else value
        for key, value in call.arguments.items()
    }
    return replace(call, arguments=arguments, texts=frozenset())
