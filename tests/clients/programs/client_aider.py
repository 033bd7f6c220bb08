"""aider, as `pumice launch aider` starts it, in an empty folder: one message, whose answer it shows."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from clients_common import MODEL, URL, run

OPTIONS = ["--no-git", "--no-show-model-warnings", "--no-check-update", "--no-analytics", "--yes-always", "--no-pretty"]


def aider(*options):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "hello.py").write_text("print('hello')\n")
        command = [sys.executable, "-m", "aider", "--model", f"openai/{MODEL}", *OPTIONS, *options, "hello.py"]
        environment = {**os.environ, "OPENAI_API_BASE": f"{URL}/v1", "OPENAI_API_KEY": "none", "HOME": folder}
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
        # A line that counts tokens follows an answer: this one, or that of an answer which the server's limit ends.
        if done.returncode or not re.search(r"Tokens:|Output tokens: ~[1-9]", done.stdout):
            raise RuntimeError((done.stdout + done.stderr)[-200:])
        return done.stdout


run(
    chat=lambda: aider("--no-stream", "--message", "Tell a story."),
    stream=lambda: aider("--stream", "--message", "Tell a story."),
)
