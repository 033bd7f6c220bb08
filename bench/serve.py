"""Compare `pumice serve` with llama-server: tokens/s, time to the first token, time between arrivals, CPU time.

    python bench/serve.py model.gguf --llama-server path/to/llama-server [--users 1 4 16] [--rates 0.5 1] [-r 3]

Both servers have the model loaded and take turns; the waiting one is idle. Each request has a prompt of random token
ids and generates a number of tokens greedily. With ``--users`` each user sends the next request as soon as the last is
answered (closed loop); with ``--rates`` requests arrive per second regardless of pending answers (open loop). A row is
the median of the repetitions, the minimum and the maximum. Before a test each server is also started anew for its first
load, which has rows of its own; ``--no-fresh`` leaves them out.
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

START_SECONDS = 120.0  # timeout of loading the model
SETTLE_SECONDS = 0.5  # pause between turns, longer than the threads of either server spin
TICKS = os.sysconf("SC_CLK_TCK")
BUSY = 0.1  # cores in use by other processes above which a row is marked

Load = Callable[..., Coroutine[Any, Any, list[Answer]]]
"""A load, as a function of a server's port and a seed."""

METRICS: dict[str, Callable[["Run"], float]] = {
    "tokens/s": lambda run: run.n_tokens / run.seconds,
    "tokens/s while all generate": lambda run: run.steady,
    "first token p50, ms": lambda run: 1000 * percentile(run.firsts, 50),
    "first token p99, ms": lambda run: 1000 * percentile(run.firsts, 99),
    "a token of an answer p50, ms": lambda run: 1000 * percentile([answer.per_token for answer in run.answers], 50),
    "between arrivals p50, ms": lambda run: 1000 * percentile(run.gaps, 50),
    "between arrivals p99, ms": lambda run: 1000 * percentile(run.gaps, 99),
    "between arrivals, longest, ms": lambda run: 1000 * max(run.gaps, default=0.0),
    "server's CPU ms a token": lambda run: 1000 * run.server_cpu / run.n_tokens,
}


FRESH_METRICS = ("first token p99, ms", "between arrivals, longest, ms")


@dataclass
class Run:
    """One repetition of one test."""

    answers: Sequence[Answer]
    seconds: float
    server_cpu: float  # CPU seconds of the server's processes
    others: float  # cores in use by other processes

    @property
    def n_tokens(self) -> int:
        return sum(answer.n_tokens for answer in self.answers)

    @property
    def steady(self) -> float:
        """Tokens per second while most answers are written at once, as many as there are users unless some wait."""
        spans = [(answer.arrivals[0][0], answer.arrivals[-1][0]) for answer in self.answers]
        times = sorted({time for span in spans for time in span})
        written = [sum(begin <= time < end for begin, end in spans) for time in times[:-1]]
        fullest = [pair for n, *pair in zip(written, times, times[1:], strict=False) if n == max(written)]
        arrivals = [arrival for answer in self.answers for arrival in answer.arrivals]
        n_tokens = sum(n for time, n in arrivals if any(begin < time <= end for begin, end in fullest))
        return n_tokens / sum(end - begin for begin, end in fullest) if fullest else 0.0

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
                raise BenchError(f"{self.name} did not start; see {self._log.name}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except OSError:
            return False

    @property
    def cpu(self) -> float:
        """CPU seconds of the server and its children."""
        return sum(cpu_of(pid) for pid in family(self._process.pid))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(40)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def family(pid: int) -> list[int]:
    children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(descendant for child in children.split() for descendant in family(int(child)))]


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_cpu() -> float:
    """Return the CPU seconds used by all processes of this machine."""
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


def measure_fresh(name: str, command: list[str], load: Load) -> Run:
    """The first load of a server that has just been started."""
    server = Server(f"{name}-fresh", command)
    try:
        return measure(server, load, 0)
    finally:
        server.close()


def table(title: str, runs: dict[str, list[Run]], fresh: dict[str, list[Run]]) -> None:
    names = list(runs)
    print(f"\n| {title} | {' | '.join(names)} | ratio |\n| --- |{' --- |' * (len(names) + 1)}")
    for metric in METRICS:
        row(metric, [[METRICS[metric](run) for run in runs[name]] for name in names])
    for metric in FRESH_METRICS if fresh else ():
        row(f"fresh server: {metric}", [[METRICS[metric](run) for run in fresh[name]] for name in names])
    busy = max(run.others for samples in runs.values() for run in samples)
    if busy > BUSY:
        print(f"other processes used up to {busy:.2f} cores")
    sys.stdout.flush()


def row(metric: str, samples: list[list[float]]) -> None:
    medians = [statistics.median(sample) for sample in samples]
    ratio = f"{medians[0] / medians[1]:.2f}" if len(samples) > 1 and medians[1] else "-"
    print(f"| {metric} | {' | '.join(map(spread, samples))} | {ratio} |")


def commands(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return each server's command: same model, cache, concurrent requests, threads, batch."""
    slots = arguments.parallel or max(arguments.users, default=16)
    options = {"-m": arguments.model, "-np": slots, "-c": slots * arguments.ctx, "-t": arguments.threads, "-b": 512}
    options["-ngl"] = arguments.n_gpu_layers
    same = [str(argument) for option in options.items() for argument in option]
    commands = {"pumice": [*shlex.split(arguments.pumice), *same]}
    if arguments.llama_server:
        others = ["-tb", str(arguments.threads), "-fa", "on", "--cache-ram", "0", "--no-webui"]
        commands["llama-server"] = [arguments.llama_server, *same, *others]
    return {name: command for name, command in commands.items() if arguments.only in (None, name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pumice", default=f"{Path(sys.executable).with_name('pumice')} serve", metavar="COMMAND")
    parser.add_argument(
        "--llama-server", metavar="PATH", help="path of llama-server; without it only Pumice is measured"
    )
    parser.add_argument("--only", choices=["pumice", "llama-server"])
    parser.add_argument("--users", type=int, nargs="*", default=[1, 4, 16], help="closed loops")
    parser.add_argument(
        "--rates", type=float, nargs="*", default=[], help="arrival rates of open loops in requests per second"
    )
    parser.add_argument("--requests", type=int, default=1, help="requests per user")
    parser.add_argument("--seconds", type=float, default=20, help="duration of an open loop in seconds")
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--generate", type=int, default=64, help="tokens")
    parser.add_argument("--ctx", type=int, default=1024, help="context tokens per concurrent request")
    parser.add_argument("--parallel", type=int, help="concurrent requests (default: the largest number of users)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("-ngl", "--n-gpu-layers", type=int, default=0, help="layers on the GPU")
    parser.add_argument("--vocab", type=int, default=30_000, help="token ids to draw prompts from")
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("--no-fresh", action="store_true", help="no rows of servers that have just been started")
    parser.add_argument("--no-warm-up", action="store_true", help="the first repetition is the servers' first load")
    arguments = parser.parse_args()

    work = Work(arguments.prompt, arguments.generate, arguments.vocab)
    tests: dict[str, Load] = {}
    for users in arguments.users:
        tests[f"{users} users"] = partial(closed_loop, work=work, users=users, requests=arguments.requests)
    for rate in arguments.rates:
        tests[f"{rate:g} requests/s"] = partial(open_loop, work=work, rate=rate, seconds=arguments.seconds)
    servers: list[Server] = []
    try:
        fresh: dict[str, dict[str, list[Run]]] = {title: {} for title in tests}
        for title, load in () if arguments.no_fresh else tests.items():
            for name, command in commands(arguments).items():
                fresh[title][name] = [measure_fresh(name, command, load)]
        for name, command in commands(arguments).items():
            servers.append(Server(name, command))
        for server in () if arguments.no_warm_up else servers:
            measure(server, partial(closed_loop, work=work, users=2, requests=1), 0)  # warms up
        for title, load in tests.items():
            runs: dict[str, list[Run]] = {server.name: [] for server in servers}
            for seed in range(arguments.repetitions):
                for server in servers if seed % 2 == 0 else servers[::-1]:
                    runs[server.name].append(measure(server, load, seed))
            table(f"{arguments.prompt} to {arguments.generate} tokens, {title}", runs, fresh[title])
    except BenchError as error:
        sys.exit(f"error: {error}")
    finally:
        for server in servers:
            server.close()


if __name__ == "__main__":
    main()
