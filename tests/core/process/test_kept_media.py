"""Rows of images stay in the engine's process: requests name them, and they are released with their last user."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.embeddings import Embeddings, KeptMedia, KeptRows
from pumice.engine.client import EngineClient
from pumice.engine.messages import Add, Encode, Encoded, EncodeMedia, Facts, Failed, MediaEncoded, ReleaseMedia, Request
from pumice.errors import EngineError
from pumice.process.awaited import Awaited
from pumice.process.codec import COMMANDS, decode_events, encode_command, encode_events
from pumice.process.engine import EngineProcess
from pumice.process.engine_host import EngineHost
from vision_files import picture, write_projector
from waiting import PATIENCE, wait_until

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
GREEDY = {"temperature": 0.0, "max_tokens": 5}


class Engine:
    def __init__(self):
        self.commands = []
        self.emit = None

    def send(self, command):
        self.commands.append(command)


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def link(engine):
    """A client, and the host behind it; messages pass as bytes."""
    media = SimpleNamespace(encode=lambda *_: ["a", Embeddings(ROWS, key=b"key"), "b"])
    sent = []

    def send(command):
        sent.append(command)
        host.obey(COMMANDS.decode(encode_command(command)))

    client = EngineClient(send, confirms=True)
    host = EngineHost(
        SimpleNamespace(thread=engine, media=media),
        lambda events: client.receive(decode_events(*encode_events(events))),
    )
    return client, host, sent


def encode(client, keep=True):
    return client.ask(EncodeMedia.of, "image", np.zeros((1, 2, 3), np.uint8), keep=keep).result(PATIENCE)


def test_a_request_names_rows_that_are_released_with_their_last_user(link, engine):
    client, host, sent = link
    first, part, last = encode(client)
    assert (first, part.rows, last, part.n_rows, part.nbytes) == ("a", None, "b", 3, 48)
    request = Request([0] * 3, media=[part.at(0)])
    client.add(request, lambda event: None)
    (span,) = engine.commands[-1].request.media
    assert (span.rows.tolist(), span.key, span.kept) == (ROWS.tolist(), b"key", None)
    client.ask(Encode, [[0] * 3], "mean", media=[[part.at(0)]])
    assert engine.commands[-1].media[0][0].rows.tolist() == ROWS.tolist()
    del part, request, sent[:]
    gc.collect()
    assert host._kept._kept  # until both have ended, as a link may deliver commands in another order
    client.receive([Failed(1, EngineError("the first ends")), Failed(9, EngineError("another's"))])
    gc.collect()
    assert not sent
    client.receive([Encoded(2, [])])
    gc.collect()
    assert sent == [ReleaseMedia(0)]
    assert not host._kept._kept
    assert not client._named


@pytest.mark.parametrize("kept", [(9, 1, 3), (0, 5, 3), (0, -1, 3), (0, 0, 3), (0, 1, 2), (0, 1, 4)])
def test_rows_that_are_not_kept_fail_their_request(link, engine, kept):
    client, _, _ = link
    held, heard = encode(client), []
    id, part, n = kept
    client.add(Request([0] * 3, media=[Embeddings(None, kept=KeptRows(KeptMedia(id), part, n, 4))]), heard.append)
    (failed,) = heard
    assert isinstance(failed, Failed)
    assert "media[0]: the engine no longer has its rows; send the request again" in str(failed.error)
    assert not engine.commands
    assert held


def test_a_key_from_another_process_is_not_believed(link, engine):
    client, _, _ = link
    client.add(Request([0] * 3, media=[Embeddings(ROWS, key=b"key")]), lambda event: None)
    assert engine.commands[-1].request.media[0].key == b""


@pytest.mark.parametrize(
    "kept", [KeptRows(KeptMedia(2), 0, 3, 4), KeptRows(KeptMedia(1), 0, 3, 5), (1, 9), (1, -1), (1, 3, 4)]
)
def test_an_engine_that_lies_about_kept_rows_is_refused(kept):
    awaited = Awaited()
    awaited.facts = Facts(8, 8, 1, [], {}, media_width=4)
    awaited.add(EncodeMedia(1, "image", [0], b"", None, True))
    block = 0
    if isinstance(kept, tuple):
        id, n_rows, *more = kept
        kept, block = KeptRows(KeptMedia(id), 0, n_rows, 4), sum(more)
    with pytest.raises(EngineError, match="unexpected answer"):
        awaited.check([MediaEncoded(1, [Embeddings(None, kept=kept, block=block)])])
    awaited.check([MediaEncoded(1, [Embeddings(None, kept=KeptRows(KeptMedia(1), 0, 8, 4))])])


def test_an_engine_in_a_process_keeps_rows_and_answers_as_one_of_this_process(tmp_path, monkeypatch):
    write_projector(tmp_path / "mmproj.gguf", "mlp")
    path, image = tiny_llama(tmp_path / "tiny.gguf"), pumice.Image(picture(50, 30))
    send, sent = EngineProcess.send, []
    monkeypatch.setattr(EngineProcess, "send", lambda self, command: sent.append(command) or send(self, command))
    with pumice.load(path, backend="numpy") as model:
        expected = model.generate([image, "a"], **GREEDY)
        vector = model.embed([[image, "a"]])[0]
    with pumice.load_process(path, backend="numpy") as model:
        first, again = model.generate([image, "a"], **GREEDY), model.generate([image, "a"], **GREEDY)
        assert np.allclose(model.embed([[image, "a"]])[0], vector, atol=1e-6)
        spans = [span for command in sent if isinstance(command, (Add, Encode)) for span in _spans(command)]
        assert len(spans) == 3
        assert all(span.rows is None and span.kept for span in spans)
        assert sum(isinstance(command, EncodeMedia) for command in sent) == 1
        _, size = model.media._encoded._kept, model.media._encoded._size
        assert size > spans[0].nbytes - 1  # rows of the engine count
        del spans
        sent.clear()
        model.media._encoded._keep(b"other", [Embeddings(np.zeros((1, 1 << 26), np.float32))])  # evicts the image
        wait_until(lambda: gc.collect() is None or any(isinstance(command, ReleaseMedia) for command in sent))
        third = model.generate([image, "a"], cache_salt="other", **GREEDY)
        assert sum(isinstance(command, EncodeMedia) for command in sent) == 1
    assert expected.tokens == first.tokens == again.tokens == third.tokens
    assert again.timings.prompt_cached == len(expected.tokens) or again.timings.prompt_cached > 4


def _spans(command):
    return command.request.media if isinstance(command, Add) else command.media[0]
