"""The lock files hold what pyproject.toml asks for, with hashes, and name no server."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.lock import FILES, LOCKS, requirements

from tools import lock

_PIN = re.compile(r"^([\w.-]+)==([^\s;]+)(?: ; .*)? \\$", re.MULTILINE)


def _pins(text: str) -> dict[str, list[str]]:
    pins: dict[str, list[str]] = {}
    for name, version in _PIN.findall(text):
        pins.setdefault(canonicalize_name(name), []).append(version)
    return pins


def _missing(wanted: list[str], text: str) -> list[str]:
    """The requirements that no pin satisfies."""
    pins, missing = _pins(text), []
    for requirement in map(Requirement, wanted):
        versions = pins.get(canonicalize_name(requirement.name), [])
        if not any(requirement.specifier.contains(version, prereleases=True) for version in versions):
            missing.append(str(requirement))
    return missing


@pytest.mark.parametrize("name", FILES)
def test_a_lock_satisfies_its_requirements(name):
    assert _missing(requirements(FILES[name]), (LOCKS / name).read_text()) == []


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_hashes_and_there_is_nothing_else(name):
    lines = (LOCKS / name).read_text().splitlines()
    entries = [line for line in lines if not line.startswith((" ", "#"))]
    followers = [lines[lines.index(entry) + 1] for entry in entries]
    assert entries
    assert [entry for entry in entries if not _PIN.match(entry)] == []
    assert [line for line in followers if not re.match(r"    --hash=sha256:[0-9a-f]{64}", line)] == []


def test_locks_of_one_environment_agree():
    pins = {name: _pins((LOCKS / name).read_text()) for name in FILES}
    differing = {
        (name, package)
        for name, file in FILES.items()
        if file.within
        for package in pins[name].keys() & pins[file.within].keys()
        if pins[name][package] != pins[file.within][package]
    }
    assert differing == set()


INSTALLERS = [
    *(".ci/setup", ".ci/ray", ".ci/setup-docs", ".ci/setup-kompute", "tools/build_kompute.sh", "deploy/Dockerfile")
]


@pytest.mark.parametrize("path", INSTALLERS)
def test_an_installer_takes_its_packages_from_a_lock(path):
    commands = (lock.ROOT / path).read_text()
    named = re.findall(r"--require-hashes --requirement .*?([\w-]+|\$lock)\.txt", commands)
    assert named
    assert set(named) <= {Path(name).stem for name in FILES} | {"$lock"}


def test_a_lock_that_lacks_a_package_is_found():
    wanted = requirements(FILES["dev.txt"])
    text = (LOCKS / "dev.txt").read_text()
    assert _missing([*wanted, "numpy>=999"], text) == ["numpy>=999"]
    assert _missing(wanted, text.replace("pluggy==", "other==")) == ["pluggy>=1.5"]
