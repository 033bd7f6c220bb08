"""Speech over HTTP, by OpenAI's client; the model is a tiny one that generates random audio codes."""

import base64
import io
import json
import wave
from collections.abc import Iterator

import numpy as np
import pytest

import pumice
from imported_late import Late
from nightly import crossed
from pumice.frontend import speech as speaking
from pumice.plugin.unstable import ModelSpec
from pumice.speech.voice import Voice
from pumice_server.models.service import Service
from server_thread import Serving, serving
from speaking_models import HOP, VOICE, write_speaking
from waiting import wait_until

openai = Late("openai")

OPTIONS = {"backend": "numpy"}
LONG = "Hello world. " + "So be it! " * 12  # two pieces
MAGIC = {"mp3": b"\xff\xf3", "opus": b"OggS", "flac": b"fLaC"}
SPEECH = {"model": "speaks", "voice": "default", "extra_body": {"seed": 3}}


@pytest.fixture(scope="module", autouse=True)
def short():
    """Let the tiny model, which never ends, speak 20 codes a word."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speaking, "_CODES_PER_WORD", 20)
        patch.setattr(speaking, "_CODES_AROUND", 0)
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_speaking(tmp_path_factory.mktemp("speaks"))


@pytest.fixture(scope="module")
def server(path) -> Iterator[Serving]:
    voice = Voice.parse(json.dumps(VOICE).encode(), "anna")
    with serving(ModelSpec(["speaks"], str(path), OPTIONS), voices={"anna": voice}) as server:
        yield server


@pytest.fixture(scope="module")
def expected(path):
    with pumice.load(path, **OPTIONS) as model:
        return {text: model.speech.speak(text, seed=3).source for text in ("Hello world.", LONG)}


def samples_of(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        return np.frombuffer(file.readframes(10**6), "<i2") / 32767


def test_the_official_clients_call_gets_a_file(client, expected, tmp_path):
    answer = client.audio.speech.create(input="Hello world.", response_format="wav", **SPEECH)
    assert answer.response.headers["content-type"] == "audio/wav"
    assert int(answer.response.headers["content-length"]) == len(answer.content)
    np.testing.assert_allclose(samples_of(answer.content), expected["Hello world."], atol=2e-5)
    with client.audio.speech.with_streaming_response.create(input=LONG, response_format="wav", **SPEECH) as streamed:
        assert streamed.headers["transfer-encoding"] == "chunked"
        streamed.stream_to_file(tmp_path / "a.wav")
    np.testing.assert_allclose(samples_of((tmp_path / "a.wav").read_bytes()), expected[LONG], atol=2e-5)


@pytest.mark.parametrize(("format", "text"), crossed(list(MAGIC), ["Hello world.", LONG]))
def test_formats_of_libsndfile(server, format, text):
    pytest.importorskip("soundfile")
    body = {"input": text, "response_format": format, "seed": 3, "max_seconds": 0.1}
    answer = server.client.post("/v1/audio/speech", json=body)
    assert answer.status_code == 200
    assert answer.content.startswith(MAGIC[format])
    assert answer.headers["content-type"] == {"mp3": "audio/mpeg", "opus": "audio/ogg"}.get(format, f"audio/{format}")


def test_events_have_the_file_in_parts_and_the_tokens(server, expected):
    body = {"input": LONG, "response_format": "pcm", "stream_format": "sse", "seed": 3, "voice": "default"}
    lines = server.client.post("/v1/audio/speech", json=body).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [event["type"] for event in events] == ["speech.audio.delta"] * 2 + ["speech.audio.done"]
    data = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    np.testing.assert_allclose(np.frombuffer(data, "<i2") / 32767, expected[LONG], atol=2e-5)
    usage = events[-1]["usage"]
    assert usage["output_tokens"] >= len(expected[LONG]) // HOP
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_voices_are_those_of_the_folder(server, path):
    body = {"input": "Hello world.", "response_format": "wav", "seed": 3, "voice": "anna"}
    answer = server.client.post("/v1/audio/speech", json=body)
    with pumice.load(path, **OPTIONS) as model:
        spoken = model.speech.speak("Hello world.", seed=3, voice=Voice.parse(json.dumps(VOICE).encode(), "anna"))
    np.testing.assert_allclose(samples_of(answer.content), spoken.source, atol=2e-5)
    for name in ("alloy", "../anna", "/etc/passwd", "anna.json"):
        answer = server.client.post("/v1/audio/speech", json={**body, "voice": name})
        assert answer.status_code == 400
        assert f"there is no voice '{name}'; served: default, anna" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"input": "你好"}, "Latin letters"),
        ({"input": ""}, "input must not be empty"),
        ({"response_format": "aac"}, "response_format"),
        ({"speed": 1.5}, "speed"),
        ({"speed": float("inf")}, ""),
        ({"instructions": "softly"}, "instructions is not supported: models that speak have none"),
        ({"voice": {"id": "x"}}, "voice"),
    ],
)
def test_wrong_fields_are_named(server, fields, problem):
    content = json.dumps({"input": "Hello.", **fields})
    answer = server.client.post("/v1/audio/speech", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]


def test_a_client_that_leaves_ends_the_speech(server, monkeypatch):
    started, complete = [], Service.complete

    async def noted(service, *arguments):
        streams = await complete(service, *arguments)
        started.append((service.model, streams[0]))
        return streams

    monkeypatch.setattr(Service, "complete", noted)
    body = {"input": "So be it all day long, and night. " * 100, "response_format": "pcm", "voice": "default"}
    with server.client.stream("POST", "/v1/audio/speech", json=body) as answer:
        assert next(answer.iter_raw())
    short = {"input": "Hi.", "max_seconds": 0.1, "response_format": "wav"}

    def is_alone() -> bool:
        before = len(started)
        assert server.client.post("/v1/audio/speech", json=short).status_code == 200
        return len(started) == before + 1

    wait_until(is_alone)
    wait_until(lambda: started[0][0].engine.snapshot().n_running == 0)
    assert len(started) < 20  # of more than 20 pieces
