"""The version of the package, from tags, from metadata, and without either."""

import subprocess
from pathlib import Path

import pytest
from tools.version import UNKNOWN, version

from tools import version as module


@pytest.fixture(autouse=True)
def nothing_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUMICE_VERSION", raising=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one commit."""
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "Change nothing")


def test_a_tag_is_the_version(repository: Path) -> None:
    assert version(repository) == "0.1.0.dev1"
    git(repository, "tag", "v1.2.3")
    git(repository, "tag", "other")
    assert version(repository) == "1.2.3"
    commit(repository)
    assert version(repository) == "1.2.4.dev1"
    git(repository, "tag", "--annotate", "v1.3.0rc1", "--message", "Candidate")
    assert version(repository) == "1.3.0rc1"


def test_changes_that_are_not_committed_are_no_release(repository: Path) -> None:
    (repository / "file").write_text("a")
    git(repository, "add", "file")
    commit(repository)
    git(repository, "tag", "v1.2.3")
    (repository / "file").write_text("b")
    assert version(repository) == "1.2.4.dev0"


def test_a_source_distribution_has_its_version(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "tag", "v1.2.3")
    (repository / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: pumice\nVersion: 4.5.6\n\nVersion: 7\n")
    assert version(repository) == "4.5.6"
    monkeypatch.setenv("PUMICE_VERSION", "8.9")
    assert version(repository) == "8.9"


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("v1.2.3", "1.2.3"),
        ("v1.2.3-0-gabcdef0-dirty", "1.2.4.dev0"),
        ("v1.2.3-14-gabcdef0", "1.2.4.dev14"),
        ("v1.2.3rc1-2-gabcdef0", "1.2.3rc2.dev2"),
        (module.ARCHIVED, UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_an_archive_has_the_version_of_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, description: str, expected: str
) -> None:
    monkeypatch.setattr(module, "ARCHIVED", description)
    assert version(tmp_path) == expected


def test_git_archive_fills_the_version_in(repository: Path) -> None:
    source = Path(str(module.__file__)).read_text()
    (repository / "version.py").write_text(source)
    (repository / ".gitattributes").write_text("version.py export-subst\n")
    git(repository, "add", ".")
    commit(repository)
    git(repository, "tag", "v1.2.3")
    git(repository, "archive", "--output", "source.tar", "HEAD")
    archived = subprocess.run(
        ["tar", "-xOf", "source.tar", "version.py"], cwd=repository, capture_output=True, check=True
    )
    assert b'ARCHIVED = "v1.2.3"' in archived.stdout
