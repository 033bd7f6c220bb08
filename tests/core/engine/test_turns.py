"""Turns of clients in the queue, and of kinds of work on the device."""

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

import guessing_programs
from guessing_programs import GREEDY, Cells, add, engine
from pumice.engine.loop.policy import HOST_ROWS, ClientTurns, Turns
from pumice.engine.requests.reading import LogitRows, with_future

KINDS = ["generate", "hidden", "logits"]


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 5))
def test_a_client_never_waits_behind_the_second_job_of_another(n_texts, n_requests, n_clients):
    turns = ClientTurns()
    flood = [turns.next("flood", request) for request in range(n_requests) for _ in range(n_texts)]
    firsts = [turns.next(f"client {i}", 0) for i in range(n_clients)]
    assert sorted(flood)[:2] != firsts[:1] * 2
    assert sum(turn <= first for turn in flood for first in firsts) == n_clients
    assert turns.next("flood", "another request") <= n_requests + 1, "its own requests alternate, too"


@given(st.lists(st.tuples(st.sampled_from("ab "), st.integers(0, 3), st.booleans()), max_size=200))
def test_a_turn_never_lies_before_what_was_admitted(events):
    turns, waiting, now = ClientTurns(), list[int](), 0
    for client, request, is_admitted in events:
        waiting.append(turns.next(client.strip(), request))
        assert waiting[-1] > now
        if is_admitted:
            now = min(waiting)
            waiting.remove(now)
            turns.admitted(now)


@given(st.dictionaries(st.sampled_from(KINDS), st.floats(0.1, 8), min_size=2), st.data())
def test_kinds_get_their_share_of_the_work(weights, data):
    costs = {kind: data.draw(st.integers(1, 100)) for kind in weights}
    turns, used = Turns(), dict.fromkeys(weights, 0.0)
    for _ in range(5000):
        kind = turns.next(weights)
        used[kind] += costs[kind]
        turns.took(kind, costs[kind], weights)
    shares = [used[kind] / weights[kind] for kind in weights]
    most = max(costs[kind] / weights[kind] for kind in weights)
    assert max(shares) - min(shares) <= 2 * most


def test_a_kind_saves_no_turns_while_it_has_no_work():
    turns, both = Turns(), {"generate": 1.0, "hidden": 1.0}
    turns.took(turns.next(both), 1.0, both)
    for _ in range(1000):
        turns.took("generate", 1.0, {"generate": 1.0})
    taken = [turns.next(both)]
    for _ in range(9):
        turns.took(taken[-1], 1.0, both)
        taken.append(turns.next(both))
    assert 4 <= taken.count("generate") <= 6


def test_a_kind_that_pauses_after_each_step_gets_no_more_than_its_share():
    turns, both, used = Turns(), {"generate": 1.0, "hidden": 1.0}, {"generate": 0.0, "hidden": 0.0}
    while sum(used.values()) < 100:
        kind = turns.next(both)
        cost = {"generate": 0.01, "hidden": 0.1}[kind]
        used[kind] += cost
        turns.took(kind, cost, both)
        if kind == "hidden":
            turns.took("generate", 0.01, {"generate": 1.0})
            used["generate"] += 0.01
    assert 45 < used["generate"] < 55


@pytest.mark.parametrize(("n_streams", "n_readers"), [(8, 1), (1, 8), (4, 2)])
def test_each_client_has_its_share_of_the_rows(n_streams, n_readers):
    """A step counts as its tokens, and as 12 at least; a client that asks again and again has as many as a stream."""
    made = engine(Cells(steps=0), n_ctx=8192, n_seqs=8)
    streams = [add(made, guessing_programs.request([5 + i], GREEDY, 4000)) for i in range(n_streams)]
    readings, ids = [], iter(range(-1, -1_000_000, -1))
    generated, read = 0, 0
    for _ in range(300):
        while sum(not reading.done for reading in readings) < n_readers:
            asked = with_future(next(ids), Future())
            readings.append(LogitRows(asked, range(100), tokens=[3 + i % 20 for i in range(100)]))
            made.read(asked)
        before = sum(len(stream.generated) for stream in streams), sum(reading.n_done for reading in readings)
        made.step()
        n_generated = sum(len(stream.generated) for stream in streams) - before[0]
        n_read = sum(reading.n_done for reading in readings) - before[1]
        generated += max(HOST_ROWS, n_generated) if n_generated else 0
        read += max(HOST_ROWS, n_read) if n_read else 0
        readings = [reading for reading in readings if not reading.done]
    share = n_streams / (n_streams + n_readers)
    assert 0.8 * share <= generated / (generated + read) <= 1.2 * share
    assert 0.8 * (1 - share) <= read / (generated + read) <= 1.2 * (1 - share)
    assert max(len(stream.generated) for stream in streams) - min(len(stream.generated) for stream in streams) <= 2
