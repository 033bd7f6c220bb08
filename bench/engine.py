"""An engine's process and the tests that it runs, for compare_llama_cpp.py."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_process import MemoryRate

SETTLE_SECONDS = 0.3
"""Pause between turns, longer than the threads of either engine spin for work."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Allow Python to cache compiled modules, as for an installed package: loading is measured."""
BUSY_WHEN_IDLE = 0.05
"""Cores that a waiting engine may use before the other engine's results are in doubt."""


class BenchError(Exception):
    """An error that is reported in one line."""


@dataclass(frozen=True)
class Test:
    """A speed to measure: ``kind`` pp or tg, with ``n_tokens`` after a prefix of ``depth`` tokens."""

    kind: str
    n_tokens: int
    depth: int = 0

    @classmethod
    def parse(cls, text: str) -> "Test":
        match = re.fullmatch(r"(pp|tg)([1-9]\d*)(?:@d?(\d+))?", text)
        if not match:
            raise argparse.ArgumentTypeError(f"invalid test {text!r}; examples: pp512, tg64, tg64@2048")
        return cls(match[1], int(match[2]), int(match[3] or 0))

    def __str__(self) -> str:
        return f"{self.kind}{self.n_tokens}" + (f" @ d{self.depth}" if self.depth else "")


@dataclass
class Engine:
    """An engine's process, from its start until ``close``."""

    name: str
    python: str
    settings: dict[str, Any]
    about: str = ""
    load_seconds: float = 0.0
    peak_bytes: int | None = None
    _idle_cpu_seconds: float = 0.0
    _idle_seconds: float = 0.0
    _idle_since: float = 0.0

    def __post_init__(self) -> None:
        script = Path(__file__).with_name("engine_process.py")
        try:
            self._process = subprocess.Popen(
                [self.python, str(script), self.name, json.dumps(self.settings)],
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise BenchError(f"cannot run {self.python}: {error.strerror}; check --python") from None
        try:
            loaded = self._reply()
        except BaseException:
            self.close()
            raise
        self.about, self.load_seconds = loaded["about"], loaded["load_seconds"]
        self._idle_since = time.perf_counter()

    def ask(self, test: str, settle_seconds: float = 0.0, **arguments: int) -> float:
        """Return the seconds of a test; the reply arrives ``settle_seconds`` after its end."""
        assert self._process.stdin
        self._idle_seconds += time.perf_counter() - self._idle_since
        request = {"test": test, "settle_seconds": settle_seconds, **arguments}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply = self._reply()
        self._idle_cpu_seconds += reply["idle_cpu_seconds"]
        self.peak_bytes = reply["peak_bytes"]
        self._idle_since = time.perf_counter()
        return float(reply["seconds"])

    @property
    def busy_when_idle(self) -> float:
        """Return the cores in use while the engine was idle."""
        return self._idle_cpu_seconds / self._idle_seconds if self._idle_seconds else 0.0

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self.name}: its process exited with status {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise BenchError(f"{self.name}: {reply['error']}")
        return reply


def measure(engine: Engine, test: Test) -> float:
    """Tokens/s of a test; bytes/s for the memory test."""
    if engine.name == "memory":
        return MemoryRate.N_BYTES / engine.ask("read", SETTLE_SECONDS)
    return test.n_tokens / engine.ask(test.kind, SETTLE_SECONDS, n_tokens=test.n_tokens, depth=test.depth)


def warn_of_busy_waiting(engines: list[Engine]) -> None:
    for engine in engines:
        if engine.busy_when_idle > BUSY_WHEN_IDLE:
            print(
                f"warning: {engine.name} used {engine.busy_when_idle:.2f} cores while idle;  "
                "the other engine's results are too low",
                file=sys.stderr,
            )
