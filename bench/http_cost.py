"""Measure the cost of HTTP in `pumice serve`: streams whose tokens come from an engine that computes nothing.

    python bench/http_cost.py [--streams 64] [--tokens 500] [--step-ms 2.4]

Writes JSON for each kind of request: tokens/s, and microseconds of CPU time per token in the HTTP process and in the
engine process, whose loop sends a token of every stream at each step.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.sandbox import Launch

N_CTX = 8192
ARGUMENTS = "PUMICE_BENCH_ENGINE"  # environment variable with the arguments of the engine's process
BODIES = {
    "/completion": {"prompt": "Once", "n_predict": 0},
    "/v1/completions": {"prompt": "Once", "max_tokens": 0},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 0},
}
WORDS = [" word", " a", "ing", ",", " the", " of", ".", " story"]


def engine(step: float) -> None:
    """The engine at the other end of the pipe: sends a token per open sequence every ``step`` seconds."""
    from pumice.engine.messages import (
        Accepted,
        Add,
        Cancel,
        Facts,
        Finished,
        Inspect,
        Inspected,
        Output,
        Snapshot,
        Timings,
    )
    from pumice.isolation.wire import take_standard_streams
    from pumice.process.codec import COMMANDS, REPORTS, Loaded, encode_events
    from pumice.process.frames import FrameWriter, read_frames

    commands, events = take_standard_streams()
    frames, coming = FrameWriter(events), map(COMMANDS.decode, read_frames(commands, lambda: 1 << 30))

    def write(events: list[Any]) -> None:
        for data in encode_events(events):
            frames(data)

    next(coming)
    frames(REPORTS.encode(Loaded(Facts(N_CTX, N_CTX, 2048, ["none"], {}))))
    left: dict[int, int] = {}
    spelt = itertools.cycle(WORDS)

    def obey() -> None:
        for command in coming:
            if isinstance(command, Add):
                write([Accepted(id) for id in command.ids])
                left.update(dict.fromkeys(command.ids, command.request.max_tokens))
            elif isinstance(command, Cancel):
                left.pop(command.id, None)
            elif isinstance(command, Inspect):
                write([Inspected(command.id, Snapshot(0, 0, 1, 1, {}, {}, 0))])
        os._exit(0)

    threading.Thread(target=obey, daemon=True).start()
    due = time.perf_counter()
    while True:
        due = max(due + step, time.perf_counter())
        time.sleep(max(0.0, due - time.perf_counter()))
        happened: list[Any] = []
        for id in list(left):
            happened.append(Output(id, [5], [next(spelt)]))
            left[id] -= 1
            if not left[id]:
                del left[id]
                happened.append(Finished(id, "", "length", Timings()))
        if happened:
            write(happened)


def launch_idle_engine(order: bytes) -> Launch:
    """Return how the spawner starts the engine that computes nothing."""
    from pumice.sandbox import Launch

    return Launch([sys.executable, __file__, *json.loads(os.environ[ARGUMENTS])], dict(os.environ))


def server(step_ms: float) -> None:
    """Run `pumice serve` with that engine."""
    from pumice.cli import main
    from pumice.spawning.child import KINDS, ChildKind

    KINDS["engine"] = ChildKind(f"{__name__}:{launch_idle_engine.__name__}", silent=False)
    os.environ[ARGUMENTS] = json.dumps(["--engine", "--step-ms", str(step_ms)])
    sys.argv[1:] = ["serve", "--port", "0", "-np", "64", "--max-queue", "1000"]
    main()


async def stream(port: int, path: str, n_tokens: int) -> None:
    """Read one streamed answer and discard it."""
    body = json.dumps({name: value or n_tokens for name, value in BODIES[path].items()} | {"stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    status = await reader.readline()
    while await reader.read(1 << 16):
        pass
    writer.close()
    assert b" 200 " in status, status


def seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def engine_of(pid: int) -> int:
    """Return the engine among the descendants of the server, whose spawner started it."""
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        if "--engine" in Path(f"/proc/{process}/cmdline").read_text().split("\0"):
            return process
        for task in Path(f"/proc/{process}/task").iterdir():
            waiting += map(int, (task / "children").read_text().split())
    raise SystemExit("the server has started no engine")


async def measure(pid: int, port: int, path: str, streams: int, n_tokens: int) -> dict[str, Any]:
    await asyncio.gather(*(stream(port, path, 8) for _ in range(streams)))  # warm-up: one-time initialization
    pids = pid, engine_of(pid)
    before, started = [seconds_of(process) for process in pids], time.perf_counter()
    await asyncio.gather(*(stream(port, path, n_tokens) for _ in range(streams)))
    spent, total = time.perf_counter() - started, streams * n_tokens
    http, steps = ((seconds_of(process) - was) / total * 1e6 for process, was in zip(pids, before, strict=True))
    report = {"path": path, "tokens_per_second": round(total / spent)}
    return report | {"http_us_per_token": round(http, 1), "engine_us_per_token": round(steps, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--step-ms", type=float, default=2.4)
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        return engine(arguments.step_ms / 1000)
    if arguments.server:
        return server(arguments.step_ms)
    command = [sys.executable, __file__, "--server", "--step-ms", str(arguments.step_ms)]
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(match[1]) for line in serving.stderr if (match := re.search(r"listening on \S+:(\d+)", line)))
        for path in BODIES:
            print(json.dumps(asyncio.run(measure(serving.pid, port, path, arguments.streams, arguments.tokens))))
    finally:
        serving.kill()
        serving.wait()


if __name__ == "__main__":
    main()
