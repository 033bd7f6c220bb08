"""Compare Pumice with llama.cpp: tokens/s, time to the first token, peak memory.

    python bench/compare_llama_cpp.py model.gguf [more.gguf ...] [--load] [--memory] [--json results.json]
    python bench/compare_llama_cpp.py model.gguf --parallel 1,4,16 --batched-bench path/to/llama-batched-bench

Each engine loads the model once, in its own process. Engines take turns, so that both see the same machine; the waiting
one is idle. Each row is printed as soon as it is measured: the median of the repetitions, the minimum and the maximum,
and the ratio of the medians.

llama.cpp runs through llama-cpp-python's C interface with llama-bench's settings: all cores, 16-bit cache, flash
attention and mmap at its defaults, random tokens. Pumice gets the same context, batch and cache type; it selects the
most probable token at each step, which llama.cpp does not.

With --parallel many sequences are processed at once, by ``pumice bench`` and llama-batched-bench, whose processes take
turns; their lengths are those of the first pp and the first tg test of --tests.
"""

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from engine import BenchError, Engine, Test, measure, warn_of_busy_waiting
from parallel import Parallel, ParallelError
from rows import ENGINES, Row, markdown_row
from tqdm import tqdm

FEWEST_TOKENS = 32
"""Minimum context of every test. Loading is measured with a short prompt."""


class Comparison:
    """Measures models, one after the other, with the selected engines."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._engines: list[str] = [arguments.only] if arguments.only else list(ENGINES)
        self._pythons = {"pumice": sys.executable, "llama.cpp": arguments.python}
        self._tests: list[Test] = arguments.tests
        self._repetitions: int = arguments.repetitions
        self._measure_load: bool = arguments.load
        self._measure_memory: bool = arguments.memory
        self._parallel = parallel_of(arguments)
        self._settings = {
            "backend": arguments.backend,
            "n_gpu_layers": arguments.n_gpu_layers,
            "n_threads": arguments.threads,
            "n_batch": 512,
            "n_ctx": max([FEWEST_TOKENS, *(test.depth + test.n_tokens for test in self._tests)]),
        }
        self.about: dict[str, str] = {}

    def rows(self, model: Path) -> Iterator[Row]:
        if self._parallel:
            yield from self._many(model, self._parallel)
            return
        if self._tests:
            yield from self._speeds(model)
        if self._measure_load:
            yield from self._loads(model)

    def _many(self, model: Path, parallel: Parallel) -> Iterator[Row]:
        """Measure each repetition in fresh processes, which warm up by themselves."""
        self.about = {"llama.cpp": "llama-batched-bench", "pumice": "pumice bench"}
        samples: dict[tuple[str, int], dict[str, list[float]]] = {}
        for turn in self._turns("sequences"):
            for name in self._engines[::turn]:
                for key, speed in parallel.runners[name](model).items():
                    samples.setdefault(key, {engine: [] for engine in self._engines})[name].append(speed)
        for (kind, n_seqs), speeds in sorted(samples.items()):
            n_tokens = parallel.n_prompt if kind == "pp" else parallel.n_gen
            yield Row(model.stem, f"{kind}{n_tokens}, {n_seqs} sequences", "tokens/s", speeds)

    def _start(self, name: str, model: Path) -> Engine:
        engine = Engine(name, self._pythons[name], {**self._settings, "path": str(model)})
        self.about[name] = engine.about
        return engine

    def _speeds(self, model: Path) -> Iterator[Row]:
        engines: list[Engine] = []
        try:
            for name in self._engines:
                engines.append(self._start(name, model))
            if self._measure_memory:
                engines.append(Engine("memory", sys.executable, self._settings))
            for test in self._tests:
                speeds = self._alternate(engines, test)
                rates = speeds.pop("memory", [])
                yield Row(model.stem, str(test), "tokens/s", speeds)
                if rates and test.kind == "tg" and not test.depth:
                    yield Row(model.stem, f"{test}, share of memory bandwidth", "%", self._shares(model, speeds, rates))
            peaks = {engine.name: mebibytes([engine.peak_bytes]) for engine in engines if engine.name in ENGINES}
            yield Row(model.stem, "peak memory in the tests", "MiB", peaks)
            if len(engines) > 1:
                warn_of_busy_waiting(engines)
        finally:
            for engine in engines:
                engine.close()

    def _alternate(self, engines: list[Engine], test: Test) -> dict[str, list[float]]:
        """Return tokens/s of each repetition by engine, after a warm-up."""
        for engine in engines:
            measure(engine, Test(test.kind, test.n_tokens))
        speeds: dict[str, list[float]] = {engine.name: [] for engine in engines}
        for turn in self._turns(str(test)):
            for engine in engines[::turn]:
                speeds[engine.name].append(measure(engine, test))
        return speeds

    @staticmethod
    def _shares(model: Path, speeds: dict[str, list[float]], rates: list[float]) -> dict[str, list[float]]:
        """Return the bandwidth in percent of the memory's, if the engine reads the file's bytes once per token."""
        n_bytes = model.stat().st_size
        return {
            name: [100 * speed * n_bytes / rate for speed, rate in zip(values, rates, strict=True)]
            for name, values in speeds.items()
        }

    def _turns(self, description: str) -> Iterator[int]:
        """Return 1 and -1 alternately, the direction of iteration over engines, so that each goes first as often."""
        for repetition in tqdm(range(self._repetitions), desc=description, leave=False, disable=None):
            yield -1 if repetition % 2 else 1

    def _loads(self, model: Path) -> Iterator[Row]:
        """Measure each repetition in a fresh process; a first one fills the file and kernel caches."""
        from_start: dict[str, list[float]] = {name: [] for name in self._engines}
        from_load: dict[str, list[float]] = {name: [] for name in self._engines}
        peaks: dict[str, list[float]] = {name: [] for name in self._engines}
        for name in self._engines:
            self._first_token(name, model)
        for turn in self._turns("first token"):
            for name in self._engines[::turn]:
                seconds, load_seconds, peak_bytes = self._first_token(name, model)
                from_start[name].append(seconds)
                from_load[name].append(load_seconds)
                peaks[name] += mebibytes([peak_bytes])
        yield Row(model.stem, "first token from start", "s", from_start)
        yield Row(model.stem, "load and first token", "s", from_load)
        yield Row(model.stem, "peak memory at that token", "MiB", peaks)

    def _first_token(self, name: str, model: Path) -> tuple[float, float, int | None]:
        """Return seconds from process start, seconds excluding Python's start and imports, and peak memory."""
        started = time.perf_counter()
        engine = self._start(name, model)
        try:
            first_token_seconds = engine.ask("first_token")
            seconds = time.perf_counter() - started
            return seconds, engine.load_seconds + first_token_seconds, engine.peak_bytes
        finally:
            engine.close()


def mebibytes(sizes: list[int | None]) -> list[float]:
    return [size / 2**20 for size in sizes if size is not None]


def parallel_of(arguments: argparse.Namespace) -> Parallel | None:
    """Yield the rows for --parallel."""
    if not arguments.parallel:
        return None
    lengths = [next((test.n_tokens for test in arguments.tests if test.kind == kind), 128) for kind in ("pp", "tg")]
    options = arguments.threads, arguments.n_gpu_layers, arguments.backend, arguments.batched_bench
    return Parallel(*lengths, arguments.parallel, *options)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Return the processor's name on Linux, elsewhere its family."""
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def parse_arguments() -> argparse.Namespace:
    def positive(text: str) -> int:
        if int(text) < 1:
            raise ValueError
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="GGUF files")
    parser.add_argument(
        "--tests",
        type=lambda text: [Test.parse(item) for item in text.split(",") if item],
        default="pp128,pp512,tg64,tg64@2048",
        help="ppN: prompt of N tokens; tgN: N generated tokens; @D: after D tokens (default: %(default)s)",
    )
    parser.add_argument("-r", "--repetitions", type=positive, default=5, help="default: %(default)s")
    parser.add_argument(
        "--load", action="store_true", help="also measure time to first token and memory, in new processes"
    )
    parser.add_argument(
        "--memory", action="store_true", help="also measure the share of memory bandwidth that tg tests reach"
    )
    parser.add_argument(
        "--parallel",
        type=lambda text: [positive(number) for number in text.split(",")],
        metavar="N,N,...",
        help="numbers of concurrent sequences, compared with llama-batched-bench",
    )
    parser.add_argument(
        "--batched-bench", default="llama-batched-bench", metavar="PROGRAM", help="default: %(default)s"
    )
    parser.add_argument("--backend", help="Pumice's backend (default: from its configuration)")
    parser.add_argument(
        "-ngl", "--n-gpu-layers", type=int, default=-1, help="layers on the GPU for both engines (-1 = all)"
    )
    parser.add_argument("-t", "--threads", type=positive, default=available_cores(), help="default: %(default)s")
    parser.add_argument(
        "--python", default=sys.executable, help="Python interpreter with llama_cpp (default: this one)"
    )
    parser.add_argument("--only", choices=ENGINES, help="measure only one engine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements, including each repetition")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    comparison = Comparison(arguments)
    rows: list[Row] = []
    try:
        for model in arguments.models:
            if not model.is_file():
                raise BenchError(f"{model}: no such file")
            for row in comparison.rows(model):
                if not rows:
                    print(f"{'; '.join(comparison.about.values())}; {arguments.threads} threads of {cpu_name()}\n")
                    print(markdown_row(["model", "measured: median (range)", *ENGINES, "ratio"]))
                    print("| --- | --- | --- | --- | --- |")
                rows.append(row)
                print(row.markdown(), flush=True)
    except (BenchError, ParallelError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if arguments.json and rows:
            results = {
                "engines": comparison.about,
                "cpu": cpu_name(),
                "threads": arguments.threads,
                "results": [row.as_dict() for row in rows],
            }
            arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
