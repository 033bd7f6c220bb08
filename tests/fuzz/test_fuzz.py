"""Fuzzers: each target takes a few hundred inputs, and the harness finds what a target gets wrong."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from fuzz.mutate import mutations
from fuzz.targets import Target, load, names
from fuzz.trial import Record, Trial

from fuzz import ROOT, targets


@pytest.mark.parametrize("name", names())
def test_a_target_finds_nothing(name: str) -> None:
    target = load(name)
    seeds = list(target.seeds())
    assert seeds
    assert all(len(seed) <= target.max_len for seed in seeds)
    for data in islice(mutations(seeds, target.tokens, target.max_len, seed=1), target.runs):
        try:
            target.check(data)
        except BaseException:
            print(f"the input: {data!r}")
            raise


def test_the_handbook_lists_the_targets():
    rows = [f"| `{name}` | {load(name).summary.removesuffix('.')} |" for name in names()]
    _, _, table = (ROOT / "fuzz" / "README.md").read_text().partition("| --- | --- |\n")
    assert table.splitlines()[: len(rows) + 1] == [*rows, ""]


def target_of(check, seeds=(b"seed",), tokens=()) -> Target:
    return Target("made_up", check, lambda: seeds, tokens, (), 64, 1, "A target of this test")


def test_a_find_is_kept_once_for_each_place(tmp_path: Path):
    def check(data: bytes) -> None:
        if b"x" in data:
            raise KeyError(data)
        if b"y" in data:
            raise AssertionError

    lines: list[str] = []
    trial = Trial(target_of(check), Record(tmp_path / "record"), tmp_path / "finds", lines.append)
    for data in (b"a", b"x1", b"x2", b"y1", b"b"):
        trial(data)
    assert sorted(path.read_bytes() for path in (tmp_path / "finds").iterdir()) == [b"x1", b"y1"]
    assert ["KeyError" in line for line in lines] == [True, False]
    assert Record(tmp_path / "record").read() == (5, 2, b"b")


BROKEN = '''"""A target that is wrong."""

import os

MODULES = ("pumice.errors",)


def seeds():
    yield b"0123456789"


def check(data):
    if data[:1] == b"1":
        os.{what}
'''


@pytest.mark.parametrize(
    ("what", "says"),
    [("abort()", "the process exited with status -6"), ("remove('/no/such/file')", "FileNotFoundError")],
)
def test_a_crash_of_the_process_is_a_find(what: str, says: str, tmp_path: Path):
    package = tmp_path / "fuzz"
    (package / "targets").mkdir(parents=True)
    for path in (ROOT / "fuzz").glob("*.py"):
        (package / path.name).write_text(path.read_text())
    (package / "targets" / "__init__.py").write_text(Path(str(targets.__file__)).read_text())
    (package / "targets" / "broken.py").write_text(BROKEN.format(what=what))
    command = [sys.executable, "-m", "fuzz", "broken", "--plain", "--runs", "3000"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    assert says in run.stdout
    (find,) = (tmp_path / ".fuzz" / "finds").iterdir()
    assert find.read_bytes()[:1] == b"1"
