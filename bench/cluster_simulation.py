"""Simulate a cluster of 1 to 1,000 replicas, to estimate the gain of routing by prefix.

    python bench/cluster_simulation.py                    print a table
    python bench/cluster_simulation.py --picture out.svg  also write the picture of docs/scale.md

Users hold conversations: each turn's prompt is the conversation so far. A replica computes a step for all its
sequences, reads prompts in between, and caches prompts until its cache is full. ``MACHINE`` has measurements of one
machine (bench/notes/performance.md): llama-8b Q4_K_M on an H200.
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import random
import statistics
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """One replica: tokens/s of prompt processing, and the throughput by number of sequences."""

    prefill: float = 12_995.0  # tokens/s
    sequences: tuple[int, ...] = (1, 4, 8, 16, 32, 64)
    tokens_per_second: tuple[float, ...] = (372, 973, 1421, 2507, 3658, 5702)  # total of all sequences
    slots: int = 64
    cache: int = 400_000  # tokens; 128 KiB each

    def step(self, n: int) -> float:
        """Return the seconds of a step, interpolated between measurements."""
        index = min(max(1, bisect.bisect_left(self.sequences, n)), len(self.sequences) - 1)
        (low, high), (slow, fast) = self.sequences[index - 1 : index + 1], self.tokens_per_second[index - 1 : index + 1]
        return low / slow + (n - low) / (high - low) * (high / fast - low / slow)


MACHINE = Machine()


@dataclass(frozen=True)
class Load:
    """The load: tokens of questions and answers, turns per conversation, seconds between turns."""

    question: float = 200.0
    answer: float = 300.0
    system: int = 1000  # tokens of the common system prompt
    turns: int = 6
    pause: float = 30.0


@dataclass(order=True)
class Turn:
    """A request of the conversation ``user``, with ``n_prompt`` tokens to read and ``n_answer`` to generate."""

    time: float
    user: int = field(compare=False)
    turn: int = field(compare=False)
    n_prompt: int = field(compare=False)
    n_answer: int = field(compare=False)


class Replica:
    """Sequences advance together: ``clock`` counts steps, whose duration depends on the number of sequences."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._time = self._clock = 0.0
        self._running: list[tuple[float, int, Turn]] = []  # the clock at its end, its index
        self.waiting: list[Turn] = []
        self._cached: OrderedDict[int, int] = OrderedDict()  # conversation -> cached tokens
        self._n = self._n_held = 0
        self.n_cached = self.n_prompt = 0

    @property
    def n_requests(self) -> int:
        return len(self._running) + len(self.waiting)

    def next_end(self) -> float:
        """Return the time at which the first of its sequences ends."""
        if not self._running:
            return float("inf")
        return self._time + (self._running[0][0] - self._clock) * self._machine.step(len(self._running))

    def advance(self, time: float) -> None:
        if self._running and time > self._time:
            self._clock += (time - self._time) / self._machine.step(len(self._running))
        self._time = max(self._time, time)

    def add(self, turn: Turn, system: int) -> float | None:
        """Accept a request: return seconds to its first token, or None if it waits for a slot."""
        if len(self._running) >= self._machine.slots:
            self.waiting.append(turn)
            return None
        return self._begin(turn, system)

    def _begin(self, turn: Turn, system: int) -> float:
        shared = system if self._cached else 0
        self._n_held -= self._cached.get(turn.user, 0)
        cached = self._cached.pop(turn.user, shared)
        self.n_cached += min(cached, turn.n_prompt)
        self.n_prompt += turn.n_prompt
        reading = max(0, turn.n_prompt - cached) / self._machine.prefill
        self._time += reading  # running sequences wait meanwhile
        self._cached[turn.user] = turn.n_prompt + turn.n_answer
        self._n_held += turn.n_prompt + turn.n_answer
        while self._n_held > self._machine.cache:
            self._n_held -= self._cached.popitem(last=False)[1]
        self._n += 1
        heapq.heappush(self._running, (self._clock + turn.n_answer, self._n, turn))
        return self._time - turn.time

    def end(self, system: int) -> tuple[Turn, float | None]:
        """End a sequence, and return it with the seconds to the first token of its successor."""
        turn = heapq.heappop(self._running)[-1]
        return turn, self._begin(self.waiting.pop(0), system) if self.waiting else None


@dataclass(frozen=True)
class Result:
    replicas: int
    routed: bool
    tokens_per_second: float  # generation throughput in the second half
    first_token: float  # seconds, median
    first_token_99: float
    hits: float  # fraction of prompt tokens in the cache


def simulate(n: int, users_per_second: float, routed: bool, seconds: float = 300.0, load: Load = Load()) -> Result:
    """Simulate; ``users_per_second``: conversations that start per replica."""
    chance, routing = random.Random(1), random.Random(2)
    replicas = [Replica(MACHINE) for _ in range(n)]
    home: dict[int, int] = {}
    coming = list(_first_turns(users_per_second * n, seconds, load, chance))
    heapq.heapify(coming)
    ends: list[tuple[float, int, int]] = []  # the serial number invalidates older entries of a replica
    versions = [0] * n
    first_tokens: list[float] = []
    n_generated = 0

    def schedule(place: int) -> None:
        versions[place] += 1
        heapq.heappush(ends, (replicas[place].next_end(), place, versions[place]))

    while coming or ends:
        if ends and (not coming or ends[0][0] <= coming[0].time):
            time, place, version = heapq.heappop(ends)
            if version != versions[place] or time == float("inf"):
                continue  # a later event has moved the end
            replicas[place].advance(time)
            turn, first = replicas[place].end(load.system)
            n_generated += turn.n_answer if seconds / 2 < time < seconds else 0
            first_tokens += [first] if first is not None else []
            if turn.turn < load.turns and time < seconds:
                heapq.heappush(coming, _next_turn(turn, time, load, chance))
            schedule(place)
            continue
        turn = heapq.heappop(coming)
        place = _choose(replicas, home.get(turn.user) if routed else None, routing)
        home[turn.user] = place
        replicas[place].advance(turn.time)
        first = replicas[place].add(turn, load.system)
        first_tokens += [first] if first is not None else []
        schedule(place)
    ordered = sorted(first_tokens)
    return Result(
        n,
        routed,
        n_generated / (seconds / 2),
        statistics.median(ordered),
        ordered[int(0.99 * len(ordered))],
        sum(replica.n_cached for replica in replicas) / sum(replica.n_prompt for replica in replicas),
    )


def _choose(replicas: list[Replica], home: int | None, chance: random.Random) -> int:
    """Route as ``PrefixRouter``: to the replica with the conversation unless it is busy, else to the better of two."""
    if home is not None and replicas[home].n_requests < MACHINE.slots:
        return home
    two = [chance.randrange(len(replicas)) for _ in range(2)]
    return min(two, key=lambda place: replicas[place].n_requests)


def _first_turns(rate: float, seconds: float, load: Load, chance: random.Random) -> Iterator[Turn]:
    time, user = 0.0, 0
    while (time := time + chance.expovariate(rate)) < seconds:
        user += 1
        question = _length(load.question, chance)
        yield Turn(time, user, 1, load.system + question, _length(load.answer, chance))


def _next_turn(turn: Turn, time: float, load: Load, chance: random.Random) -> Turn:
    question = _length(load.question, chance)
    n_prompt = turn.n_prompt + turn.n_answer + question
    later = time + chance.expovariate(1 / load.pause)
    return Turn(later, turn.user, turn.turn + 1, n_prompt, _length(load.answer, chance))


def _length(mean: float, chance: random.Random) -> int:
    """Draw a length from a log-normal distribution whose standard deviation equals its mean."""
    sigma = 0.8326  # sqrt(log 2)
    return max(1, round(mean * chance.lognormvariate(-sigma * sigma / 2, sigma)))


# --- the picture


WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 64, 44
COLOURS = {True: "#2f6f9f", False: "#b0663d"}
NAMES = {True: "by prefix", False: "less busy of two"}


def picture(results: list[Result], what: str, value: str, top: float) -> str:
    """Return an SVG with a line per routing over the number of replicas; ``value`` is the plotted attribute."""
    counts = sorted({point.replicas for point in results})
    x = {n: LEFT + i * (WIDTH - LEFT - 24) / (len(counts) - 1) for i, n in enumerate(counts)}

    def y(number: float) -> float:
        return HEIGHT - BOTTOM - number / top * (HEIGHT - BOTTOM - 40)

    parts = [f'<text x="{LEFT}" y="20" font-weight="600">{what}</text>']
    for i in range(5):
        number = top * i / 4
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(number):.1f}" y2="{y(number):.1f}" stroke="#8884"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(number) + 4:.1f}" text-anchor="end">{number:.2g}</text>')
    parts += [f'<text x="{x[n]:.1f}" y="{HEIGHT - 24}" text-anchor="middle">{n}</text>' for n in counts]
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">replicas</text>')
    for routed in (True, False):
        line = [point for point in results if point.routed == routed]
        points = " ".join(f"{x[point.replicas]:.1f},{y(getattr(point, value)):.1f}" for point in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[routed]}" stroke-width="2.5"/>')
        above = y(getattr(line[-1], value)) - 10
        parts.append(
            f'<text x="{WIDTH - 16}" y="{above:.1f}" text-anchor="end" fill="{COLOURS[routed]}">{NAMES[routed]}</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return f'{head} font-size="13">{background}{"".join(parts)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate a cluster of replicas.")
    parser.add_argument("--replicas", default="1,2,4,8,16,64,250,1000", help="numbers of replicas")
    parser.add_argument("--users", type=float, default=1.0, help="conversations that start per second and replica")
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated time in seconds")
    parser.add_argument("--picture", type=Path, help="write the prefix hits as SVG")
    options = parser.parse_args()
    results = []
    print("| replicas | routed | tokens/s | first token, ms | p99, ms | prompt tokens cached |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n in map(int, options.replicas.split(",")):
        for routed in (True, False):
            result = simulate(n, options.users, routed, options.seconds)
            results.append(result)
            times = f"{result.first_token * 1000:.0f} | {result.first_token_99 * 1000:.0f}"
            print(
                f"| {n} | {NAMES[routed]} | {result.tokens_per_second:,.0f} | {times} | {result.hits:.0%} |", flush=True
            )
    if options.picture:
        options.picture.write_text(picture(results, "Fraction of prompt tokens in the cache", "hits", 1.0))


if __name__ == "__main__":
    main()
