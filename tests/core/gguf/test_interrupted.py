"""Files that could not be finished: nothing is left of them."""

import signal
import subprocess
import sys

import pytest

from pumice.demo import demo_model_path
from waiting import PATIENCE, wait_until

resource = pytest.importorskip("resource")


def pumice_command(*arguments, n_bytes=None):
    """A process whose files may have so many bytes."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))) if n_bytes else None
    command = [sys.executable, "-m", "pumice", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=limit)


@pytest.mark.parametrize("n_bytes", [4096, 1 << 20], ids=["in the header", "in the tensors"])
def test_a_disk_that_takes_no_more(tmp_path, n_bytes):
    out = tmp_path / "out.gguf"
    process = pumice_command("gguf", "set", demo_model_path(), "general.name=other", "-o", out, n_bytes=n_bytes)
    said, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, f"error: {out}: cannot be written: file too large\n")
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_told_to_end(tmp_path):
    out = tmp_path / "out.gguf"
    for _ in range(5):  # where this process stands still, that one may have done its work before it is told
        out.write_text("what was there")
        process = pumice_command("quantize", demo_model_path(), out, "IQ3_S", "--allow-requantize", "--force", "--pure")
        wait_until(lambda: process.poll() is not None or list(tmp_path.glob(".pumice-*/written/*")))  # noqa: B023
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        if process.returncode:
            break
    assert process.returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_text() == "what was there"
