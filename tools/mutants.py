"""A sample of small faults, put into the sources one at a time: do the tests of their area notice?

    python -m tools.mutants draw > build/mutants.txt
    python -m tools.mutants try build/mutants.txt --areas samplers grammar --number 60

The draw is the same for the same sources and ``SEED``. ``try`` changes the sources in place, so it wants a checkout of
its own without uncommitted changes, and restores each file. It prints a line for each mutant and the sum of each area.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEED = 48
N_MUTANTS = 300
MAX_SECONDS = 600  # of a processor, in which the tests of an area end otherwise
AREAS = {  # sources, and the tests that are to notice
    "engine": ("core/pumice/engine", "tests/core/engine"),
    "cache": ("core/pumice/engine/cache", "tests/core/engine tests/core/cache_tiers"),
    "samplers": (
        "plugins/pumice_samplers core/pumice/sampler",
        "tests/plugins/samplers tests/core/sampler tests/core/test_transcription.py tests/core/engine",
    ),
    "tokenizers": ("core/pumice/tokenizers", "tests/core/tokenizers"),
    "grammar": ("core/pumice/grammar", "tests/core/grammar"),
    "server": ("plugins/pumice_server", "tests/plugins/server"),
    "cpu": ("plugins/pumice_cpu/lower", "tests/plugins/cpu"),
    "vulkan": ("plugins/pumice_vulkan/lower", "tests/plugins/vulkan"),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    area: str
    path: str
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        return "\t".join((self.area, self.path, str(self.line), str(self.column), self.old, self.new))


def faults(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node with each small fault that its kind can have."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in COMPARISONS:
        other.ops[0] = COMPARISONS[type(other.ops[0])]()
        yield other
    elif isinstance(other, ast.BinOp) and type(other.op) in OPERATORS:
        other.op = OPERATORS[type(other.op)]()
        yield other
    elif isinstance(other, ast.BoolOp):
        other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
        yield other
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        yield other.operand
    elif isinstance(other, ast.IfExp):
        yield ast.IfExp(ast.UnaryOp(ast.Not(), other.test), other.body, other.orelse)
    elif isinstance(other, ast.Constant) and type(other.value) is bool:
        yield ast.Constant(not other.value)
    elif isinstance(other, ast.Constant) and type(other.value) in (int, float):
        yield ast.Constant(other.value + 1)


def mutants(area: str) -> Iterator[Mutant]:
    """Yield every mutant of an area's functions whose text is on one line."""
    paths = (path for folder in AREAS[area][0].split() for path in sorted((ROOT / folder).rglob("*.py")))
    for path in paths:
        text = path.read_text(encoding="utf-8")
        functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
        nodes = {id(node): node for function in functions for part in function.body for node in ast.walk(part)}
        lines = text.encode().splitlines()
        for node in nodes.values():
            if isinstance(node, ast.expr) and node.lineno == node.end_lineno:
                old = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
                for fault in faults(node):
                    new = f"({ast.unparse(ast.fix_missing_locations(fault))})"
                    yield Mutant(area, str(path.relative_to(ROOT)), node.lineno, node.col_offset, old, new)


def draw() -> Iterator[Mutant]:
    """Yield the sample, as many of each area."""
    for area in AREAS:
        every = list(dict.fromkeys(mutants(area)))
        yield from random.Random(f"{SEED} {area}").sample(every, min(len(every), N_MUTANTS // len(AREAS)))


def ordered(mutant: Mutant, tests: Path) -> list[str]:
    """Return the area's test files; those that name the module or the changed function come first."""
    lines = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()[: mutant.line]
    functions = [found[1] for line in lines if (found := re.match(r"\s*(?:def|class) (\w+)", line))]
    names = rf"\b(?:{Path(mutant.path).stem}|{functions[-1]})\b"
    folders = [tests / folder for folder in AREAS[mutant.area][1].split()]
    files = [path for folder in folders for path in (sorted(folder.rglob("test_*.py")) or [folder])]
    files = [path for path in files if path.parent.name != "page"]
    return [str(path) for path in sorted(files, key=lambda path: -len(re.findall(names, path.read_text("utf-8"))))]


def noticed(mutant: Mutant, python: str, tests: Path) -> bool:
    """Run the tests of a mutant's area, and say whether one fails. One that goes on too long has noticed, too."""
    path = ROOT / mutant.path
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    line = lines[mutant.line - 1]
    old, end = mutant.old.encode(), mutant.column + len(mutant.old.encode())
    assert line[mutant.column : end] == old, f"other sources than those of the draw: {mutant}"
    command = [python, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-m", "not nightly and not ray"]
    command += ordered(mutant, tests)
    lines[mutant.line - 1] = line[: mutant.column] + mutant.new.encode() + line[end:]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    try:
        path.write_bytes(b"".join(lines))
        done = subprocess.run(command, cwd=tests, capture_output=True, preexec_fn=limit, timeout=3600, check=False)
        return done.returncode != 0
    except subprocess.TimeoutExpired:  # it waits for nothing
        return True
    finally:
        path.write_bytes(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw", help="print the sample")
    trying = commands.add_parser("try", help="try the mutants of FILE")
    trying.add_argument("file", type=Path, metavar="FILE")
    trying.add_argument("--areas", nargs="+", choices=AREAS, default=[*AREAS])
    trying.add_argument("--number", type=int, default=N_MUTANTS, metavar="N", help="mutants of these areas to try")
    trying.add_argument("--tests", type=Path, default=ROOT, metavar="DIR", help="a checkout with other tests")
    arguments = parser.parse_args()
    if arguments.command == "draw":
        print(*draw(), sep="\n")
        return
    rows = [line.split("\t") for line in arguments.file.read_text().splitlines()]
    sample = [Mutant(row[0], row[1], int(row[2]), int(row[3]), row[4], row[5]) for row in rows]
    counts: Counter[tuple[str, bool]] = Counter()
    for area in arguments.areas:
        for mutant in [one for one in sample if one.area == area][: arguments.number // len(arguments.areas)]:
            killed = noticed(mutant, sys.executable, arguments.tests)
            counts[area, killed] += 1
            print("killed" if killed else "survived", mutant, sep="\t", flush=True)
        print(f"{area}: {counts[area, True]} killed, {counts[area, False]} survived", flush=True)


if __name__ == "__main__":
    main()
