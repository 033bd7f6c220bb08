"""Fuzzers: each target takes a few hundred inputs, and the harness finds what a target gets wrong."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from threading import Event
from time import sleep

import pytest
from fuzz.campaign import GUIDED, Campaign, Turn
from fuzz.growth import check_linear
from fuzz.mutate import mutations
from fuzz.process import Run
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


def test_mutations_are_the_same_each_time():
    first, second = (list(islice(mutations([b"abc", b"defg"], [b"token"], 16, seed=5), 500)) for _ in range(2))
    assert first == second
    assert first[:2] == [b"abc", b"defg"]
    assert len(set(first)) > 300
    assert max(map(len, first)) <= 16
    assert any(b"token" in data for data in first)


def test_inputs_that_come_later_are_mutated():
    inputs = [b"abc"]
    found = mutations(inputs, [], 16, seed=5)
    next(found)
    inputs.append(b"XYZ")
    assert any(b"XYZ" in data for data in islice(found, 100))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="lines are reported from Python 3.12 on")
def test_new_lines_are_reported_once():
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from fuzz.lines import Lines
from pumice.wording import did_you_mean
lines = Lines()
for _ in range(2):
    did_you_mean("a", ["b"])
    print(lines.reached)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(int, run.stdout.split())
    assert 0 < first == second


def test_a_campaign_takes_turns_and_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fuzz.campaign.FINDS", tmp_path / "finds")
    taken: list[Turn] = []
    done = Event()

    def take(turn: Turn, seconds: float, slot: int) -> Run:
        taken.append(turn)
        if len(taken) >= 3 * GUIDED:
            done.set()
        return Run(turn.target, "atheris" if turn.guided else "plain", seconds, 10, 7, None, [])

    class Clock:
        """Is at its end once enough turns were taken."""

        def __call__(self) -> float:
            return 1000.0 if done.is_set() else 0.0

    monkeypatch.setattr("fuzz.campaign.monotonic", Clock())
    report = tmp_path / "counts.json"
    assert Campaign(["a", "b"], 3, report, take).work(workers=2, seconds=60) == 0
    counts = json.loads(report.read_text())
    assert counts["executions"] == 10 * len(taken)
    assert {turn.target for turn in taken[:2]} == {"a", "b"}
    assert counts["targets"]["a"]["guided"] == 10 * sum(turn.guided for turn in taken if turn.target == "a")
    assert counts["targets"]["b"]["edges"] == 7
    assert {turn.seed for turn in taken} == set(range(3, 3 + -(-len(taken) // 2)))


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


def test_a_slow_input_is_a_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fuzz.trial.SLOW", 0.01)
    lines: list[str] = []

    def check(data: bytes) -> None:
        if data == b"slow":
            sum(range(3_000_000))
        else:
            sleep(0.02)  # takes no time of the processor

    trial = Trial(target_of(check), Record(tmp_path / "record"), tmp_path / "finds", lines.append)
    trial(b"fast")
    assert lines == []
    trial(b"slow")
    assert "CPU time" in lines[0]


def test_growth_is_judged(monkeypatch):
    monkeypatch.setattr("fuzz.growth._ENOUGH", 0.02)  # seconds; a fast processor needs less than the real limit

    def squared(text: str) -> None:
        sum(1 for _ in text for _ in text[: len(text) // 24])

    check_linear(list, "", "ab")
    with pytest.raises(AssertionError, match="'ab' repeated"):
        check_linear(squared, "", "ab")


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
