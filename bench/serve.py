"""`pumice serve` and llama-server side by side: tokens/s, time to the first token, time between tokens, processor time.

    python bench/serve.py model.gguf --llama-server path/to/llama-server [--users 1 4 16] [--rates 0.5 1] [-r 3]

Both servers have the model loaded and take turns; the one that waits does not compute. Each request has a prompt of
random token ids and asks for a number of tokens, most probable ones. With ``--users`` each of so many asks again as
soon as it is answered (closed loop); with ``--rates`` so many requests arrive a second, whether others are answered or
not (open loop). A row is the median of the repetitions, the lowest and the highest.
"""

import argparse
import asyncio
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from engine import BenchError
from http_load import Answer, Work, closed_loop, open_loop
from rows import spread

START_SECONDS = 120.0  # to load the model
SETTLE_SECONDS = 0.5  # between turns; longer than threads of either server wait actively
TICKS = os.sysconf("SC_CLK_TCK")
BUSY = 0.1  # cores that others may use before a row is marked

Load = Callable[..., Coroutine[Any, Any, list[Answer]]]
"""What is asked of a server, by its port and a seed."""

METRICS: dict[str, Callable[["Run"], float]] = {
    "tokens/s": lambda run: run.n_tokens / run.seconds,
    "tokens/s while all generate": lambda run: run.steady,
    "first token p50, ms": lambda run: 1000 * percentile(run.firsts, 50),
    "first token p99, ms": lambda run: 1000 * percentile(run.firsts, 99),
    "between tokens p50, ms": lambda run: 1000 * percentile(run.gaps, 50),
    "between tokens p99, ms": lambda run: 1000 * percentile(run.gaps, 99),
    "between tokens, longest, ms": lambda run: 1000 * max(run.gaps, default=0.0),
    "server's CPU ms a token": lambda run: 1000 * run.server_cpu / run.n_tokens,
}


@dataclass
class Run:
    """One repetition of one test."""

    answers: Sequence[Answer]
    seconds: float
    server_cpu: float  # seconds of the server's processes
    others: float  # cores that other processes used meanwhile

    @property
    def n_tokens(self) -> int:
        return sum(answer.n_tokens for answer in self.answers)

    @property
    def steady(self) -> float:
        """Tokens a second from the last first token to the first last one; 0 where there is no such time."""
        begin = max(answer.arrivals[0][0] for answer in self.answers)
        end = min(answer.arrivals[-1][0] for answer in self.answers)
        n_tokens = sum(n for answer in self.answers for time, n in answer.arrivals if begin < time <= end)
        return n_tokens / (end - begin) if end > begin else 0.0

    @property
    def firsts(self) -> list[float]:
        return [answer.first for answer in self.answers]

    @property
    def gaps(self) -> list[float]:
        return [gap for answer in self.answers for gap in answer.gaps]


@dataclass
class Server:
    """A server's process, from its start until ``close``."""

    name: str
    command: list[str]
    port: int = field(default_factory=lambda: free_port())

    def __post_init__(self) -> None:
        self._log = open(f"/tmp/bench-{self.name}.log", "wb")  # noqa: SIM115  # for as long as the process
        try:
            self._process = subprocess.Popen(
                [*self.command, "--port", str(self.port)], stdout=self._log, stderr=self._log
            )
        except OSError as error:
            raise BenchError(f"cannot run {self.command[0]}: {error.strerror}") from None
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise BenchError(f"{self.name} does not answer; see {self._log.name}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except OSError:
            return False

    @property
    def cpu(self) -> float:
        """Processor seconds of it and its children."""
        return sum(cpu_of(pid) for pid in family(self._process.pid))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(40)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def family(pid: int) -> list[int]:
    children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(each for child in children.split() for each in family(int(child)))]


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_cpu() -> float:
    """Processor seconds that everything on this machine has used."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def measure(server: Server, load: Load, seed: int) -> Run:
    time.sleep(SETTLE_SECONDS)
    cpu, own, all_, began = server.cpu, time.process_time(), machine_cpu(), time.perf_counter()
    answers = asyncio.run(load(server.port, seed=seed))
    seconds = time.perf_counter() - began
    cpu, own, all_ = server.cpu - cpu, time.process_time() - own, machine_cpu() - all_
    errors = [answer.error for answer in answers if answer.error]
    if errors:
        raise BenchError(f"{server.name}: {len(errors)} of {len(answers)} requests failed: {errors[0]:.300}")
    return Run(answers, seconds, cpu, max(0.0, all_ - cpu - own) / seconds)


def table(title: str, runs: dict[str, list[Run]]) -> None:
    names = list(runs)
    print(f"\n| {title} | {' | '.join(names)} | ratio |\n| --- |{' --- |' * (len(names) + 1)}")
    for metric, value in METRICS.items():
        samples = [[value(run) for run in runs[name]] for name in names]
        medians = [statistics.median(each) for each in samples]
        ratio = f"{medians[0] / medians[1]:.2f}" if len(names) > 1 and medians[1] else "-"
        print(f"| {metric} | {' | '.join(map(spread, samples))} | {ratio} |")
    busy = max(run.others for each in runs.values() for run in each)
    if busy > BUSY:
        print(f"other processes used up to {busy:.2f} cores meanwhile")
    sys.stdout.flush()


def commands(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """How each server is started: the same model, cache, parallel requests, threads, batch."""
    slots = arguments.parallel or max(arguments.users, default=16)
    options = {"-m": arguments.model, "-np": slots, "-c": slots * arguments.ctx, "-t": arguments.threads, "-b": 512}
    options["-ngl"] = arguments.n_gpu_layers
    same = [str(each) for option in options.items() for each in option]
    found = {"pumice": [*shlex.split(arguments.pumice), *same]}
    if arguments.llama_server:
        others = ["-tb", str(arguments.threads), "-fa", "on", "--cache-ram", "0", "--no-webui"]
        found["llama-server"] = [arguments.llama_server, *same, *others]
    return {name: command for name, command in found.items() if arguments.only in (None, name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pumice", default=f"{Path(sys.executable).with_name('pumice')} serve", metavar="COMMAND")
    parser.add_argument("--llama-server", metavar="PATH", help="without it Pumice is measured alone")
    parser.add_argument("--only", choices=["pumice", "llama-server"])
    parser.add_argument("--users", type=int, nargs="*", default=[1, 4, 16], help="closed loops")
    parser.add_argument("--rates", type=float, nargs="*", default=[], help="open loops: requests a second")
    parser.add_argument("--requests", type=int, default=1, help="of each user")
    parser.add_argument("--seconds", type=float, default=20, help="of an open loop")
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--generate", type=int, default=64, help="tokens")
    parser.add_argument("--ctx", type=int, default=1024, help="tokens of context for each of the parallel requests")
    parser.add_argument("--parallel", type=int, help="requests computed at once; the most users without it")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("-ngl", "--n-gpu-layers", type=int, default=0, help="layers on a GPU")
    parser.add_argument("--vocab", type=int, default=30_000, help="token ids to draw prompts from")
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    arguments = parser.parse_args()

    work = Work(arguments.prompt, arguments.generate, arguments.vocab)
    tests: dict[str, Load] = {}
    for users in arguments.users:
        tests[f"{users} users"] = partial(closed_loop, work=work, users=users, requests=arguments.requests)
    for rate in arguments.rates:
        tests[f"{rate:g} requests/s"] = partial(open_loop, work=work, rate=rate, seconds=arguments.seconds)
    servers: list[Server] = []
    try:
        for name, command in commands(arguments).items():
            servers.append(Server(name, command))
        for server in servers:
            measure(server, partial(closed_loop, work=work, users=2, requests=1), 0)  # warms up
        for title, load in tests.items():
            runs: dict[str, list[Run]] = {server.name: [] for server in servers}
            for seed in range(arguments.repetitions):
                for server in servers if seed % 2 == 0 else servers[::-1]:
                    runs[server.name].append(measure(server, load, seed))
            table(f"{arguments.prompt} to {arguments.generate} tokens, {title}", runs)
    except BenchError as error:
        sys.exit(f"error: {error}")
    finally:
        for server in servers:
            server.close()


if __name__ == "__main__":
    main()
