"""The tiers without an engine: limits, what is evicted first, and files that appear whole."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from pumice.cache_tiers import DiskTier, Entry, RamTier, disk, ram
from pumice.cache_tiers.entry import eviction_order
from pumice.cache_tiers.files import HEADER_BYTES, SECRET_BYTES
from pumice.errors import ConfigError

N_BYTES = 1000


def entry(number: int, n_past: int = 32, n_tokens: int = 32) -> Entry:
    return Entry(bytes([number]) * 32, n_past, n_tokens, N_BYTES)


def data(number: int) -> np.ndarray:
    return np.full(N_BYTES, number, np.uint8)


def test_the_oldest_and_cheapest_goes_first() -> None:
    hour, day = eviction_order(1000, 32, 32, 3600.0), eviction_order(1000, 32, 32, 86400.0)
    state = eviction_order(1000, 3200, 3200, 86400.0)
    assert day > hour > state
    assert eviction_order(1000, 32, 64, 3600.0) > hour > eviction_order(1000, 32, 32, 2000.0)
    assert eviction_order(2000, 32, 32, 3600.0) > hour


def test_memory_stays_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tier = RamTier(10 * (N_BYTES + 512))
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(ram.time, "monotonic", lambda: float(next(clock)))
    for number in range(40):
        tier.put(entry(number), data(number))
        if number >= 1 and tier.has(entry(1)):
            assert (tier.get(entry(1)) == 1).all()
        assert tier.tally.n_bytes <= tier.tally.limit_bytes
    held = [number for number in range(40) if tier.has(entry(number))]
    assert {1, 39} <= set(held)
    assert 2 not in held
    assert tier.tally.n_entries == len(held) == 40 - tier.tally.n_evicted
    tier.put(Entry(b"x" * 32, 32, 32, 10**6), np.zeros(10**6, np.uint8))
    assert not tier.has(Entry(b"x" * 32, 32, 32, 10**6))


@pytest.mark.parametrize(
    ("least_free", "limit", "reason"),
    [(2**62, 10**6, r"less than \d+ GiB of the disk is free"), (0, N_BYTES, "cache_disk_limit is too small for one")],
)
def test_what_is_never_stored_is_told_once(
    tmp_path: Path,
    least_free: int,
    limit: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(disk, "_LEAST_FREE", least_free)
    tier = DiskTier(tmp_path / "cache", limit)
    for number in range(3):
        tier.put(entry(number), data(number))
    assert tier.wait(60, empty=True)
    tier.close(60)
    assert tier.tally.n_refused == 3
    [message] = caplog.messages
    assert re.search(f"prompts are not stored while {reason}", message)


def test_the_folder_stays_within_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_LEAST_FREE", 0)
    limit = 10 * (HEADER_BYTES + N_BYTES)
    (tmp_path / "00").mkdir(mode=0o700)
    (tmp_path / "00" / "notes").write_text("of somebody")
    for first in (0, 20):  # the second process finds what the first one wrote
        tier = DiskTier(tmp_path, limit)
        for number in range(first, first + 20):
            assert tier.put(entry(number), data(number))
        assert tier.wait(60, empty=True)
        size = sum(file.stat().st_size for file in tmp_path.glob("*/*-*"))
        assert 0.8 * limit - HEADER_BYTES - N_BYTES <= size <= limit
        assert (tier.get(entry(first + 19)) == first + 19).all()
        tier.close(60)
    assert (tmp_path / "00" / "notes").exists()


def test_a_second_process_reads_what_the_first_wrote(tmp_path: Path) -> None:
    first, second = DiskTier(tmp_path, 2**20), DiskTier(tmp_path, 2**20)
    first.put(entry(1), data(1))
    assert first.wait(60, empty=True)
    assert (second.get(entry(1)) == 1).all()
    assert second.get(entry(2)) is None
    assert not second.has(Entry(entry(1).key, 32, 32, N_BYTES + 1))
    for tier in (first, second):
        tier.close(60)


def test_processes_that_write_at_once_share_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counts the folder after a tenth of the limit, so that only what the others wrote since then is too much."""
    monkeypatch.setattr(disk, "_LEAST_FREE", 0)
    size = HEADER_BYTES + N_BYTES
    limit, n_tiers, n_each = 40 * size, 3, 60
    tiers = [DiskTier(tmp_path, limit) for _ in range(n_tiers)]
    for number in range(n_each):
        for i, tier in enumerate(tiers):
            assert tier.put(entry(i * n_each + number), data(i * n_each + number))
    for tier in tiers:
        assert tier.wait(60, empty=True)
        assert tier.works
    files = list(tmp_path.glob("*/*-*"))
    assert 0.5 * limit < len(files) * size <= (1 + 0.1 * n_tiers) * limit
    stored = [number for number in range(n_tiers * n_each) if tiers[0].has(entry(number))]
    assert len(stored) == len(files)
    assert all((tier.get(entry(number)) == number).all() for number in stored for tier in tiers)
    for tier in tiers:
        tier.close(60)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_full_disk_stops_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fails(path: Path, content: bytes) -> None:
        raise error

    tier = DiskTier(tmp_path, 2**20)
    monkeypatch.setattr(disk, "write_file", fails)
    tier.put(entry(1), data(1))
    assert tier.wait(60, empty=True)
    monkeypatch.undo()
    tier.put(entry(2), data(2))
    assert tier.wait(60, empty=True)
    assert not tier.has(entry(2))
    assert not tier.works
    assert caplog.text.count("out of memory" if isinstance(error, MemoryError) else "No space left on device") == 1
    tier.close(60)


@pytest.mark.parametrize("kind", ["link", "other user", "others write"])
def test_a_folder_that_others_may_control_is_refused(tmp_path: Path, kind: str) -> None:
    folder, target = tmp_path / "cache", tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    if kind == "link":
        folder.symlink_to(target)
    else:
        folder.mkdir(mode=0o700)
        make_foreign(folder, kind)
    with pytest.raises(ConfigError, match=r"must be a folder that belongs to you"):
        DiskTier(folder, 10**6)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "other user", "others write"])
def test_a_folder_of_entries_that_others_may_control_is_not_written(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_LEAST_FREE", 0)
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    if kind == "link":
        (folder / "05").symlink_to(target)
    else:
        (folder / "05").mkdir(mode=0o700)
        make_foreign(folder / "05", kind)
    tier = DiskTier(folder, 10**6)
    for number in (5, 6):
        tier.put(entry(number), data(number))
    assert tier.wait(60, empty=True)
    assert (tier.has(entry(5)), tier.has(entry(6)), tier.tally.n_refused) == (False, True, 1)
    assert list(target.iterdir()) == []
    tier.close(60)


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is old: another process may be writing it."""
    replace = os.replace

    def leave(temporary: Path, path: Path) -> None:
        os.link(temporary, Path(temporary).with_name(f".{len(left):016x}"))
        left.append(Path(temporary).with_name(f".{len(left):016x}"))
        replace(temporary, path)

    tmp_path.chmod(0o700)
    tier, left = DiskTier(tmp_path, 2**20), []
    monkeypatch.setattr("pumice.cache_files.os.replace", leave)
    for number in (1, 2):
        tier.put(entry(number), data(number))
    tier.close(60)
    os.utime(left[0], (0, 0))
    DiskTier(tmp_path, 2**20).close(60)
    assert [file.exists() for file in left] == [False, True]


def make_foreign(path: Path, kind: str) -> None:
    """Let another user own a path, or write to it."""
    if kind == "others write":
        path.chmod(0o777)
    elif os.getuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        pytest.skip("only root gives files away")


@pytest.mark.parametrize("kind", ["other user", "others write", "folder"])
def test_a_secret_that_others_may_know_is_refused(tmp_path: Path, kind: str) -> None:
    """Anybody who knows the secret can make entries."""
    secret = tmp_path / "secret"
    if kind == "folder":
        secret.mkdir()
    else:
        secret.write_bytes(b"k" * SECRET_BYTES)
        make_foreign(secret, kind)
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError, match=r"^cache_saved: .*cannot be read or written.*choose another folder"):
        DiskTier(tmp_path, 10**6, "cache_saved")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_secret_that_is_no_file_is_replaced(tmp_path: Path, kind: str) -> None:
    target, folder = tmp_path / "known", tmp_path / "cache"
    target.write_bytes(b"k" * SECRET_BYTES)
    folder.mkdir(mode=0o700)
    secret = folder / "secret"
    if kind == "link":
        secret.symlink_to(target)
    else:
        os.mkfifo(secret)
    DiskTier(folder, 10**6).close(60)
    assert not secret.is_symlink()
    assert secret.read_bytes() != b"k" * SECRET_BYTES
    assert target.read_bytes() == b"k" * SECRET_BYTES


@pytest.mark.parametrize("kind", ["other user", "others write"])
def test_an_entry_that_another_user_may_have_written_is_removed(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_LEAST_FREE", 0)
    tier = DiskTier(tmp_path / "cache", 10**6)
    tier.put(entry(5), data(5))
    assert tier.wait(60, empty=True)
    (file,) = (tmp_path / "cache").glob("05/*")
    make_foreign(file, kind)
    assert tier.get(entry(5)) is None
    assert not file.exists()
    tier.close(60)
