"""Commands of the far end of a link: a request that takes long to prepare keeps none of the others waiting."""

import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from types import SimpleNamespace

import numpy as np
import pytest

from pumice.clients import REQUEST_CANCELLED, check_wanted
from pumice.engine.client import EngineClient
from pumice.engine.messages import Accepted, Add, Cancel, EncodeMedia, Failed, Request
from pumice.errors import RequestError
from pumice.grammar import Grammar
from pumice.process import linked
from pumice.process.engine_host import ENCODERS, EngineHost
from waiting import PATIENCE, wait_until


class Engine:
    """Takes commands; requests with a grammar or a long prediction only when it is let."""

    def __init__(self):
        self.commands = []
        self.let = threading.Event()
        self.emit = None

    def send(self, command):
        request = command.request if isinstance(command, Add) else Request([1])
        if request.grammar or len(request.prediction or "") > 10_000:
            self.let.wait(PATIENCE)
            if request.grammar and request.grammar.source == "wrong":
                raise RequestError("a wrong grammar")
        self.commands.append(command)


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.let.set()


@pytest.fixture
def events():
    return []


@pytest.fixture
def host(engine, events):
    return EngineHost(SimpleNamespace(thread=engine), events.extend)


def request(source=None, prediction=None):
    return Request([1], grammar=Grammar(source) if source else None, prediction=prediction)


@pytest.mark.parametrize("slow", [request("slow"), request(prediction="a " * 10_000)])
def test_others_do_not_wait_for_a_grammar_or_a_long_prediction(host, engine, events, slow):
    slow, quick = Add([1], slow), Add([2], request(prediction="a short one"))
    host.obey(slow)
    host.obey(quick)
    host.obey(Cancel(2))
    assert engine.commands == [quick, Cancel(2)]
    assert events == [Accepted(2)]
    engine.let.set()
    wait_until(lambda: len(events) == 2)
    assert engine.commands[2:] == [slow]
    assert events[1] == Accepted(1)


def test_a_request_that_is_cancelled_while_its_grammar_is_compiled_ends(host, engine):
    both = Add([1, 2], request("slow"))
    host.obey(both)
    host.obey(Cancel(2))
    assert engine.commands == []
    engine.let.set()
    wait_until(lambda: len(engine.commands) == 2)
    assert engine.commands == [both, Cancel(2)]
    host.obey(Cancel(1))
    assert engine.commands[2:] == [Cancel(1)]


def test_a_wrong_grammar_is_told(host, engine, events):
    host.obey(Add([1, 2], request("wrong")))
    host.obey(Cancel(1))
    engine.let.set()
    wait_until(lambda: len(events) == 2)
    assert [(event.id, str(event.error)) for event in events if isinstance(event, Failed)] == [
        (1, "a wrong grammar"),
        (2, "a wrong grammar"),
    ]


def test_a_sound_whose_client_left_is_encoded_no_longer(events):
    """The far end, which would otherwise encode it to its end, hears of it, and skips what waits."""
    begun, ended, asked = [], [], []

    def encode(kind, samples, form):
        begun.append(samples)
        with suppress(CancelledError):
            REQUEST_CANCELLED.get().result(PATIENCE)
        ended.append(samples)
        check_wanted()

    def ask():
        REQUEST_CANCELLED.set(request)
        with pytest.raises(RequestError, match="the request was cancelled"):
            linked._wanted(client.ask(EncodeMedia.of, "audio", np.zeros(3, np.float32)))
        asked.append(True)

    engine = SimpleNamespace(thread=SimpleNamespace(), media=SimpleNamespace(encode=encode))
    host = EngineHost(engine, lambda heard: (events.extend(heard), client.receive(heard)))
    client, request = EngineClient(host.obey), Future()
    threads = [threading.Thread(target=copy_context().run, args=[ask]) for _ in range(ENCODERS + 1)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == ENCODERS and len(host._media) == len(threads))
    request.cancel()
    wait_until(lambda: len(events) == len(asked) == len(threads) and not host._media)
    assert (len(ended), {type(event) for event in events}) == (ENCODERS, {Failed})
