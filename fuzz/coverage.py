"""Coverage of the modules under test by a target's seeds and grown corpus."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import CodeType, FrameType

from fuzz.targets import Target


def covered_lines(target: Target, corpus: Path) -> str:
    """Run the target on all inputs and return one line of report."""
    files = {file: set(_lines(compile(Path(file).read_text(), file, "exec"))) for file in _files(target.modules)}
    reached: dict[str, set[int]] = {file: set() for file in files}

    def trace_line(frame: FrameType, event: str, _: object) -> object:
        reached[frame.f_code.co_filename].add(frame.f_lineno)
        return trace_line

    def trace(frame: FrameType, event: str, argument: object) -> object:
        return trace_line(frame, event, argument) if frame.f_code.co_filename in reached else None

    inputs = [b"", *target.seeds(), *(path.read_bytes() for path in corpus.glob("*"))]
    sys.settrace(trace)
    try:
        for data in inputs:
            target.check(data)
    finally:
        sys.settrace(None)
    n_lines = sum(map(len, files.values()))
    n_reached = sum(len(lines & reached[file]) for file, lines in files.items())
    return f"{target.name:20} {n_reached} of {n_lines} lines ({n_reached / n_lines:.0%}) with {len(inputs)} inputs"


def _files(names: tuple[str, ...]) -> Iterator[str]:
    """Yield the source files of modules and of packages with their submodules."""
    for name in names:
        module = import_module(name)
        assert module.__file__ is not None
        yield module.__file__
        for submodule in walk_packages(getattr(module, "__path__", ()), f"{name}."):
            yield from _files((submodule.name,))


def _lines(code: CodeType) -> Iterator[int]:
    """Lines of functions' bodies; those that run at import are not counted."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x1 or constant.co_name == "<lambda>":  # CO_OPTIMIZED: a function, not a class
                yield from (line for _, _, line in constant.co_lines() if line and line != constant.co_firstlineno)
            yield from _lines(constant)
