"""Caches are read only where no other user can have written them, and written whole or not at all."""

import os
from pathlib import Path

import pytest

from pumice import cache_files
from pumice.cache_files import is_private, is_safe, read_file, write_file


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_a_folder_that_others_may_write_is_unsafe(tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(mode)
    assert not is_safe(tmp_path)
    assert f"ignoring cache {tmp_path}" in caplog.text
    tmp_path.chmod(0o755)
    assert is_safe(tmp_path)
    assert is_safe(tmp_path / "missing")


def test_a_written_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_file(path, b"one")
    write_file(path, b"three")
    assert read_file(path, 5) == b"three"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(path, 4)


def test_a_link_is_neither_read_nor_followed_by_a_write(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"another's")
    path.symlink_to(target)
    with pytest.raises(OSError):
        read_file(path, 100)
    write_file(path, b"own")
    assert read_file(path, 100) == b"own"
    assert target.read_bytes() == b"another's"


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "file"
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(path, 100)


def test_a_file_that_others_may_write_to_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"one")
    path.chmod(0o666)
    with pytest.raises(OSError, match="not a regular file of this user"):
        read_file(path, 100)


def test_a_folder_of_another_user_is_not_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 12345, -1)
    else:
        monkeypatch.setattr(cache_files.os, "getuid", lambda: 12345)
    assert not is_safe(tmp_path)
    assert not is_private(tmp_path)


def test_only_an_own_folder_is_private(tmp_path: Path) -> None:
    mine, open_to_all, link = tmp_path / "mine", tmp_path / "open", tmp_path / "link"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link.symlink_to(mine)
    assert is_private(mine)
    assert not is_private(open_to_all)
    assert not is_private(link)
