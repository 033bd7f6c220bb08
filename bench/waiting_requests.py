"""Measure what waiting requests cost a step of an engine.

    python bench/waiting_requests.py [MODEL] [-n WAITING] [-r ROUNDS]

Prints the processor time of a step in the engine's thread beside WAITING requests of each kind, relative to that beside
few: none that generate, or 2,000 of texts, which are read in turns with four generations. The median of ROUNDS, with
the minimum and the maximum. MODEL: default: the demo model.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Generator

import pumice
from pumice.engine import Engine, Generation, Preparer
from pumice.engine.messages import Encode, Request, Score
from pumice.engine.requests.reading import ReadRequest
from pumice.local_engine import local_engine

Job = Generation | ReadRequest
STEPS = 600
FEW = 2_000  # texts, four of which a step reads
IDS = itertools.count(1 << 40)
KINDS: dict[str, Callable[[Preparer, int], Job]] = {
    "generations": lambda prepare, id: prepare.generations(
        [id], Request([5, 6, 7], 1, priority=-1), f"client {id % 100}"
    )[0],
    "texts to embed": lambda prepare, id: prepare.texts(Encode(id, [[5, 6, 7]], "mean")),
    "texts to score": lambda prepare, id: prepare.scores(Score(id, [5, 6, 7], cache_salt=str(id))),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=pumice.demo_model_path())
    parser.add_argument("-n", type=int, default=10_000, metavar="WAITING")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with pumice.load(arguments.model, backend="cpu", n_parallel=4, n_ctx=2048, speculate="off") as model:
        for kind, job in KINDS.items():
            ratios: list[float] = []
            for _ in range(arguments.rounds):
                few, many = (seconds(model, job, n) for n in (0 if kind == "generations" else FEW, arguments.n))
                ratios.append(many / few)
            print(f"{kind}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


def seconds(model: pumice.Model, job: Callable[[Preparer, int], Job], n: int) -> float:
    """Return the processor time of a step beside ``n`` waiting requests."""
    prepare = local_engine(model).thread._prepare
    endless = Request([5], None, {"temperature": 0.0}, end_tokens=frozenset(), context_shift=True)
    running = [prepare.generations([next(IDS)], endless)[0] for _ in range(4)]
    waiting = [job(prepare, next(IDS)) for _ in range(n)]

    def turns(engine: Engine) -> Generator[None, None, float]:
        for item in [*running, *waiting]:
            engine.add(item) if isinstance(item, Generation) else engine.read(item)
        for _ in range(20):
            engine.step()
        began = time.thread_time()
        for _ in range(STEPS):
            engine.step()
            engine.drain()
        used = time.thread_time() - began
        for item in [*running, *waiting]:
            engine.cancel(item.id)
        engine.settle()
        engine.drain()
        yield
        return used / STEPS

    return local_engine(model).thread.call(turns)


if __name__ == "__main__":
    main()
