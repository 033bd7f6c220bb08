"""The simulation of bench/cluster_simulation.py: its machine is the measured one, its conversations lose nothing."""

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    return importlib.import_module("cluster_simulation")


def test_a_step_takes_what_was_measured_and_more_the_more_it_computes(cluster):
    machine = cluster.Machine()
    for n, rate in zip(machine.sequences, machine.tokens_per_second, strict=True):
        assert n / machine.step(n) == pytest.approx(rate)
    steps = [machine.step(n) for n in range(1, 65)]
    assert steps == sorted(steps)


def test_sequences_together_take_the_time_of_their_steps(cluster):
    replica, machine = cluster.Replica(cluster.MACHINE), cluster.MACHINE
    for user in (0, 1):
        assert replica.add(cluster.Turn(0.0, user, 1, 1000, 100), system=0) == pytest.approx(
            (user + 1) * 1000 / machine.prefill
        )
    end = replica.next_end()
    assert end == pytest.approx(2000 / machine.prefill + 100 * machine.step(2))
    replica.advance(end)
    assert [replica.end(0)[0].user, replica.end(0)[0].user] == [0, 1]


def test_one_replica_is_the_same_however_it_is_chosen(cluster):
    routed, other = (cluster.simulate(1, 0.5, by_prefix, seconds=60) for by_prefix in (True, False))
    assert (routed.tokens_per_second, routed.hits) == (other.tokens_per_second, other.hits)


def test_routing_by_prefix_finds_more_and_answers_earlier(cluster):
    routed, other = (cluster.simulate(8, 0.7, by_prefix, seconds=120) for by_prefix in (True, False))
    assert routed.hits > other.hits + 0.2
    assert routed.first_token < other.first_token


def test_the_picture_is_svg(cluster):
    results = [cluster.simulate(n, 0.3, by_prefix, seconds=20) for n in (1, 2) for by_prefix in (True, False)]
    text = cluster.picture(results, "Hits", "hits", 1.0)
    assert text.startswith("<svg ")
    assert text.count("<polyline ") == 2
