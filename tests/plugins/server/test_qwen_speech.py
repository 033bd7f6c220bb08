"""Speech by Qwen3-TTS over HTTP, with OpenAI's client."""

import numpy as np
import pytest

import pumice
import qwen_speech_models as tiny
from imported_late import Late
from pumice.plugin.unstable import ModelSpec
from server_thread import serving

openai = Late("openai")

FRAME = 1920


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write_converted(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def server(path):
    with serving(ModelSpec(["qwen"], str(path), {"backend": "numpy"})) as server:
        yield server


def test_the_official_client_streams_a_speech(server, path):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    more = {"seed": 3, "language": "english", "max_seconds": 0.4}
    options = {"model": "qwen", "voice": "default", "response_format": "pcm", "extra_body": more}
    with client.audio.speech.with_streaming_response.create(input="hello", **options) as streamed:
        heard = np.frombuffer(b"".join(streamed.iter_bytes()), "<i2") / 32767
    with pumice.load(path, backend="numpy") as model:
        sound = model.speech.speak("hello", seed=3, language="english", max_seconds=0.4)
    np.testing.assert_allclose(heard, sound.source, atol=1e-3)
    assert len(heard) == 5 * FRAME


def test_unknown_languages_are_one_error(server):
    body = {"model": "qwen", "input": "hello", "language": "klingon"}
    answer = server.client.post("/v1/audio/speech", json=body)
    assert answer.status_code == 400
    assert "does not know 'klingon'" in answer.json()["error"]["message"]
