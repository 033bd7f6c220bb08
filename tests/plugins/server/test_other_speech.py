"""Speech by Pocket TTS and Qwen3-TTS over HTTP, with OpenAI's client; and models that do not speak."""

import io
import json
import wave

import numpy as np
import pytest

import pocket_models as tiny
import pumice
import qwen_speech_models
from pumice.media.audio import VOICE_RATE, read_voice
from pumice.plugin.unstable import ModelSpec
from server_thread import serving

TEXT = "hello there. " * 5


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pocket")
    (folder / "qwen").mkdir()
    return {
        "ends": tiny.write_converted(folder / "ends", 40.0),
        "qwen": qwen_speech_models.write_converted(folder / "qwen"),
    }


@pytest.fixture(scope="module")
def server(paths, tmp_path_factory):
    pytest.importorskip("soundfile")
    file = tmp_path_factory.mktemp("voices") / "anna.wav"
    pumice.Audio(tiny.voice(), VOICE_RATE).save(file)
    models = [ModelSpec([name], str(path), {"backend": "numpy"}) for name, path in paths.items()]
    models.append(ModelSpec(["mute"], str(paths["ends"]), {"backend": "numpy", "mmproj": "off"}))
    with serving(*models, voices={"anna": read_voice(file)}) as server:
        yield server


def test_the_official_client_streams_a_speech(client, paths):
    options = {"model": "ends", "voice": "anna", "response_format": "pcm", "extra_body": {"seed": 3}}
    parts = []
    with client.audio.speech.with_streaming_response.create(input=TEXT, **options) as streamed:
        assert streamed.headers["transfer-encoding"] == "chunked"
        parts += streamed.iter_bytes()
    with pumice.load(paths["ends"], backend="numpy") as model:
        sound = model.speech.speak(TEXT, seed=3, voice=pumice.Audio(tiny.voice(), VOICE_RATE)).source
    heard = np.frombuffer(b"".join(parts), "<i2") / 32767
    np.testing.assert_allclose(heard, sound, atol=2e-3)  # the voice's file has 16 bits
    assert len(parts) > 1
    whole = client.audio.speech.create(input="hello", model="ends", voice="default", response_format="wav")
    with wave.open(io.BytesIO(whole.content)) as file:
        assert file.getframerate() == VOICE_RATE


def test_a_speech_in_a_language(client, paths):
    more = {"seed": 3, "language": "english", "max_seconds": 0.4}
    options = {"model": "qwen", "voice": "default", "response_format": "pcm", "extra_body": more}
    heard = np.frombuffer(client.audio.speech.create(input="hello", **options).content, "<i2") / 32767
    with pumice.load(paths["qwen"], backend="numpy") as model:
        sound = model.speech.speak("hello", **more)
    np.testing.assert_allclose(heard, sound.source, atol=1e-3)
    assert len(heard) == 5 * 1920  # frames


def test_events_have_the_tokens(server):
    body = {"model": "ends", "input": "hello", "stream_format": "sse", "response_format": "pcm"}
    lines = server.client.post("/v1/audio/speech", json=body).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["output_tokens"] == 11
    assert events[-1]["usage"]["input_tokens"] > 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "mute"}, "this model does not speak"),
        ({"model": "mute", "voice": "alloy", "response_format": "mp3"}, "this model does not speak"),
        ({"input": "?!"}, "the text has no words"),
        ({"voice": "../anna"}, "there is no voice '../anna'; served: default, anna"),
        ({"speed": 2}, "speed"),
        ({"model": "qwen", "language": "klingon"}, "does not know 'klingon'"),
    ],
)
def test_unspeakable_input_is_one_error(server, fields, problem):
    answer = server.client.post("/v1/audio/speech", json={"model": "ends", "input": "hello", **fields})
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]
