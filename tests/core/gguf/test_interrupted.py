"""A file that could not be finished: nothing is left of it."""

import signal
import subprocess
import sys

from pumice.demo import demo_model_path
from waiting import PATIENCE, wait_until


def test_a_process_that_is_told_to_end(tmp_path):
    out = tmp_path / "out.gguf"
    for _ in range(5):  # where this process stands still, that one may have done its work before it is told
        out.write_text("what was there")
        options = ["IQ3_S", "--allow-requantize", "--force", "--pure"]
        command = [sys.executable, "-m", "pumice", "quantize", demo_model_path(), out, *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_until(lambda: process.poll() is not None or list(tmp_path.glob(".pumice-*/written/*")))  # noqa: B023
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        if process.returncode:
            break
    assert process.returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_text() == "what was there"
