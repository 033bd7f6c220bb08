"""``pumice doctor --report``: a file with every device's results beside NumPy's."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from pumice.cli import device_report
from pumice.cli.doctor import command
from pumice.cli.machine_report import Finding
from pumice.device_checks import Case, all_cases, check_cases, open_backend
from pumice.sandbox.launch import Launch
from pumice_numpy import NumpyBackend


def cases(name):
    return (case for case in all_cases() if case.name.startswith(name))


@pytest.mark.parametrize(
    "name",
    [
        *("linear Q4_K, ", "experts Q4_K", "experts F16", "route by sigmoid", "conv1d", "ssm_scan"),
        *("linear_attention", "attention q8"),
        *("rope of halves", "rope of pairs", "embedding Q6_K", "layer_norm", "formula", "silu_mul", "concat", "slice"),
        *("sum", "top_k"),
    ],
)
def test_each_kind_of_operation_is_checked(name):
    found = list(check_cases(lambda: open_backend("numpy", 0), cases(name)))
    assert [check.name.rpartition(", ")[2] for check in found] == [*("1 token", "4 tokens", "20 tokens", "70 tokens")]
    assert all(check.difference == 0 and not check.problem for check in found)


def test_wrong_results_and_errors_are_problems():
    calls = []

    def twice(g, a):
        calls.append(g)
        return a["x"] * (4.0 if len(calls) == 3 else 2.0)

    def refuse(g, a):
        raise ValueError("no such\nthing")

    x = {"x": np.ones((1, 4), np.float32)}
    wrong, failed = check_cases(NumpyBackend, iter([Case("twice", twice, x, {}), Case("refuse", refuse, x, {})]))
    assert wrong.problem == "more than 0.02 of the largest value"
    assert wrong.difference == 1.0
    assert (failed.difference, failed.problem) == (None, "no such thing")


FINDINGS = [Finding("cache", "ok", ["/home/müller/.cache/pumice"])]
GPU = {"name": "A GPU \x1b[2J", "kind": "gpu", "memory_bytes": 1, "details": {"driver": "/data/müller/lib.so"}}


def report_of(script, path, monkeypatch):
    """The report's JSON and lines, if ``script`` examines the only device."""
    monkeypatch.setattr("pumice.sandbox.launch", lambda *_: Launch([sys.executable, "-c", script], {}))
    backends = [{"backend": "vulkan", "available": True, "reason": None, "devices": [GPU]}]
    monkeypatch.setattr(device_report, "list_backends", lambda: backends)
    lines = device_report.write_report(path, FINDINGS, lambda *_: None)
    return json.loads(path.read_text()), lines


def test_output_of_drivers_is_no_message(tmp_path, monkeypatch):
    """More on standard error than a pipe holds; on standard output text, JSON of other kinds, and no UTF-8."""
    script = """
import os, sys
os.write(2, b"warning\\n" * 50_000)
for line in (b"MESA: hello", b"\\xff\\xfe", b"[1]", b"3", b'{"error": null}', b"[" * 100_000, b'{"n_checks": 3}'):
    os.write(1, line + b"\\n")
sys.exit("\\x1b]0;title\\x07 no device")
"""
    report, lines = report_of(script, tmp_path / "report.json", monkeypatch)
    (device,) = report["devices"]
    assert device["n_checks"] == 3
    assert device["error"] == "exit status 1: ?]0;title? no device"
    assert lines == [f"vulkan0: 0 checks pass, 0 fail, 0 are left to other backends; {device['error']}"]


def test_a_report_names_no_home_of_any_spelling(tmp_path, monkeypatch):
    """JSON escapes what is not ASCII; a home may be a link."""
    real, link = tmp_path / "data" / "müller", tmp_path / "home"
    real.mkdir(parents=True)
    link.symlink_to(real.parent)
    monkeypatch.setenv("HOME", str(link / "müller"))
    text = json.dumps({"facts": {"paths": [f"{link}/müller/a", f"{real}/b"], f"{real}": 1}})
    report, _ = report_of(f"print({text!r})", tmp_path / "report.json", monkeypatch)
    assert report["devices"][0]["facts"] == {"paths": ["~/a", "~/b"], "~": 1}


def test_a_report_has_what_came_before_a_crash_and_no_identifiers(tmp_path, monkeypatch):
    home = tmp_path / "somebody"
    monkeypatch.setenv("HOME", str(home))
    lines = [
        {"facts": {"folder": f"{home}/driver", "subgroup_size": 32}},
        {"n_checks": 3},
        {"check": {"name": "softmax, 1 token", "difference": 0.0, "problem": ""}},
        {"check": {"name": "silu, 1 token", "difference": 0.5, "problem": "more than 0.02 of the largest value"}},
    ]
    script = f"import os, json; print({chr(10).join(map(json.dumps, lines))!r}, flush=True); os.kill(os.getpid(), 9)"

    def launch(module, arguments):
        assert (module, arguments) == ("pumice.device_checks", ["vulkan", "0"])
        return Launch([sys.executable, "-c", script], {})

    monkeypatch.setattr("pumice.sandbox.launch", launch)
    monkeypatch.setattr("pumice.cli.doctor.sandbox_finding", lambda setting: Finding("sandbox", "ok", []))
    device = {"name": "A GPU", "kind": "gpu", "memory_bytes": 1, "details": {"uuid": "8932f937", "type": "discrete"}}
    backends = [
        {"backend": "vulkan", "available": True, "reason": None, "devices": [device]},
        {"backend": "other", "available": False, "reason": "not here", "devices": []},
    ]
    monkeypatch.setattr(device_report, "list_backends", lambda: backends)
    path = tmp_path / "report.json"
    done = CliRunner().invoke(command, ["--no-measure", "--report", str(path)])
    assert done.exit_code == 0
    assert "vulkan0: 1 checks pass, 1 fail, 0 are left to other backends" in done.stderr
    assert "exit status -9 after silu, 1 token" in done.stderr
    report = json.loads(path.read_text())
    assert report["unavailable"] == {"other": "not here"}
    (found,) = report["devices"]
    assert found["facts"] == {"folder": "~/driver", "subgroup_size": 32}
    assert found["details"] == {"type": "discrete"}
    assert len(found["checks"]) == 2
    assert str(home) not in path.read_text()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing/report.json", "the folder {folder}/missing does not exist"),
        ("file/report.json", "the folder {folder}/file does not exist"),
        ("n" * 300 + ".json", "cannot be written: file name too long"),
        ("nowhere", "nowhere: a link to a file that does not exist"),
        ("thesis", "thesis: exists already, and is no report; name another file"),
        ("/dev/zero", "/dev/zero: not a regular file"),
        ("", "expected FILE, not ''"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_checked(tmp_path, name, problem):
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "thesis").write_text("1. Introduction")
    done = CliRunner().invoke(command, ["--report", str(tmp_path / name) if name else ""])
    assert done.exit_code == 2
    assert problem.format(folder=tmp_path) in done.stderr
    assert not done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "nowhere", "thesis"]
    assert (tmp_path / "thesis").read_text() == "1. Introduction"
