"""What HTTP costs `pumice serve`: streams whose tokens come from an engine that computes nothing.

    python bench/http_cost.py [--streams 64] [--tokens 500] [--step-ms 2.4]

Writes JSON, for each kind of request: tokens/s, and microseconds of processor time a token in the process of HTTP and
in that of the engine, whose loop sends a token of every stream every so many milliseconds.
"""

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
from typing import Any

N_CTX = 8192
BODIES = {
    "/completion": {"prompt": "Once", "n_predict": 0},
    "/v1/completions": {"prompt": "Once", "max_tokens": 0},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 0},
}
WORDS = [" word", " a", "ing", ",", " the", " of", ".", " story"]


def engine(step: float) -> None:
    """The far end of the pipe: every ``step`` seconds a token of each sequence, as many as it asked for."""
    from pumice.engine.messages import Accepted, Add, Answer, Ask, Cancel, Facts, Finished, Output, Snapshot, Timings
    from pumice.process.codec import COMMANDS, REPORTS, Loaded, encode_events
    from pumice.process.frames import FrameWriter, read_frames
    from pumice.process.worker import _take_standard_streams

    commands, events = _take_standard_streams()
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
            elif isinstance(command, Ask):
                write([Answer(command.id, Snapshot(0, 0, 1, 1, {}, {}, 0))])
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


def server(step_ms: float) -> None:
    """`pumice serve` with that engine."""
    import pumice.process.engine
    from pumice.cli import main
    from pumice.sandbox import Launch

    command = [sys.executable, __file__, "--engine", "--step-ms", str(step_ms)]
    pumice.process.engine.launch = lambda *_, **__: Launch(command, dict(os.environ))
    sys.argv[1:] = ["serve", "--port", "0", "-np", "64", "--max-queue", "1000"]
    main()


async def stream(port: int, path: str, n_tokens: int) -> None:
    """One streamed answer, read and thrown away."""
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
    """Of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def engine_of(pid: int) -> int:
    """The child of the server that is its engine."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    threads = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
    children += [child for task in threads for child in (task / "children").read_text().split()]
    return next(int(child) for child in children if "--engine" in Path(f"/proc/{child}/cmdline").read_text())


async def measure(pid: int, port: int, path: str, streams: int, n_tokens: int) -> dict[str, Any]:
    await asyncio.gather(*(stream(port, path, 8) for _ in range(streams)))  # what is made once is made
    pids = pid, engine_of(pid)
    before, started = [seconds_of(each) for each in pids], time.perf_counter()
    await asyncio.gather(*(stream(port, path, n_tokens) for _ in range(streams)))
    spent, total = time.perf_counter() - started, streams * n_tokens
    http, steps = ((seconds_of(each) - was) / total * 1e6 for each, was in zip(pids, before, strict=True))
    told = {"path": path, "tokens_per_second": round(total / spent)}
    return told | {"http_us_per_token": round(http, 1), "engine_us_per_token": round(steps, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--step-ms", type=float, default=2.4)
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        return engine(given.step_ms / 1000)
    if given.server:
        return server(given.step_ms)
    command = [sys.executable, __file__, "--server", "--step-ms", str(given.step_ms)]
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(found[1]) for line in serving.stderr if (found := re.search(r"listening on \S+:(\d+)", line)))
        for path in BODIES:
            print(json.dumps(asyncio.run(measure(serving.pid, port, path, given.streams, given.tokens))))
    finally:
        serving.kill()
        serving.wait()


if __name__ == "__main__":
    main()
