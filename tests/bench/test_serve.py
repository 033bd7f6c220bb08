"""The load that bench/serve.py puts on a server, and what it counts."""

import asyncio
import importlib
from pathlib import Path

import pytest

import pumice
from server_thread import running


@pytest.fixture(autouse=True)
def _bench(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")


@pytest.fixture
def load():
    return importlib.import_module("http_load")


@pytest.fixture
def serve():
    return importlib.import_module("serve")


def test_users_and_arrivals_are_answered(load):
    work = load.Work(prompt=8, generate=6, n_vocab=500)
    with pumice.load() as model, running(model) as server:
        port = int(server.url.rpartition(":")[2])
        answers = asyncio.run(load.closed_loop(port, work, users=3, requests=2, seed=1))
        answers += asyncio.run(load.open_loop(port, work, rate=50, seconds=0.1, seed=1))
        refused = asyncio.run(load.ask(port, b'{"prompt": 1.5}'))
    assert len(answers) > 6
    assert all((answer.error, answer.n_tokens) == ("", 6) for answer in answers)
    assert all(answer.first > 0 and len(answer.gaps) <= 5 for answer in answers)
    assert " 400 " in refused.error


def test_counts_of_a_run(serve):
    answers = [serve.Answer(0.0, [(1.0, 1), (3.0, 2)]), serve.Answer(1.0, [(4.0, 1)])]
    run = serve.Run(answers, seconds=8.0, server_cpu=2.0, others=0.0)
    assert (run.n_tokens, run.firsts, run.gaps) == (4, [1.0, 3.0], [2.0])
    assert [answer.per_token for answer in answers] == [1.0, 0.0]
    assert serve.percentile([5, 1, 2, 4, 3], 50) == 3
    assert serve.percentile([1, 2], 99) == 2
