"""A server in a process of its own, for measurements that send it requests."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

STOPPING = 60.0  # seconds that a server has to end


@contextlib.contextmanager
def serving(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``pumice serve`` with arguments on a free port, and yield it with its address. Ends it afterwards.

    Exits with the server's last lines if it does not start.
    """
    command = [sys.executable, "-m", "pumice", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder)
    try:
        assert process.stderr
        lines = []
        for line in process.stderr:
            lines.append(line)
            if match := re.match(r"listening on (\S+)", line):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield process, match[1]
                return
        raise SystemExit(f"error: the server did not start: {''.join(lines[-5:])}")
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPPING)
        process.kill()
