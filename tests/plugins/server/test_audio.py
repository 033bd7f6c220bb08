"""Sound in requests, by OpenAI's client; the model is a tiny one with Qwen2-Audio's projector."""

import asyncio
import base64
import threading
from collections.abc import Iterator

import ollama
import pytest

import pumice
from gguf_files import tiny_llama
from hearing_models import sound, write_folder
from hostile_sounds import hostile_sounds, pcm, wav
from imported_late import Late
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from pumice.plugin.unstable import ModelSpec
from server_thread import Serving, serving

openai = Late("openai")

pytest.importorskip("soundfile")
pytest.importorskip("soxr")
WAV = wav(pcm(sound(0.4)))
N_AUDIO = 10  # its tokens
PART = {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}}
OPTIONS = {"backend": "numpy", "chat_template": "chatml"}
GREEDY = {"temperature": 0.0, "max_tokens": 5}
VERBOSE = {"response_format": "verbose_json"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hears")
    write_folder(folder / "audio", "qwen2audio")
    with open_model(folder / "audio", options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    return tiny_llama(folder / "tiny.gguf")


@pytest.fixture(scope="module")
def server(path) -> Iterator[Serving]:
    with serving(ModelSpec(["hears"], str(path), OPTIONS)) as server:
        yield server


def test_chats_hear(server, client, path):
    content = [{"type": "text", "text": "What is said?"}, PART]
    answer = client.chat.completions.create(model="hears", messages=[{"role": "user", "content": content}], **GREEDY)
    with pumice.load(path, **OPTIONS) as model:
        expected = model.chat([{"role": "user", "content": ["What is said?", pumice.Audio(WAV)]}], **GREEDY)
    assert answer.choices[0].message.content == expected.message.content
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens
    assert answer.usage.prompt_tokens_details.audio_tokens == expected.usage.audio_tokens == N_AUDIO
    assert server.client.get("/props").json()["modalities"] == {"vision": False, "video": False, "audio": True}


def test_ollamas_chat_and_generate_hear(server, path):
    """A sound is among the images, as in Ollama."""
    client, options = ollama.Client(host=server.url), {"temperature": 0, "num_predict": 5}
    message = {"role": "user", "content": "What is said?", "images": [WAV]}
    answer = client.chat(model="hears", messages=[message], options=options)
    with pumice.load(path, **OPTIONS) as model:
        expected = model.chat([{"role": "user", "content": [pumice.Audio(WAV), "What is said?"]}], **GREEDY)
    assert answer.message.content == expected.message.content
    assert answer.prompt_eval_count == expected.usage.prompt_tokens
    generated = client.generate(model="hears", prompt="What is said?", images=[WAV], options=options)
    assert generated.response == answer.message.content
    assert "audio" in client.show("hears").capabilities
    with pytest.raises(ollama.ResponseError, match="takes no images"):
        client.generate(model="hears", prompt="What is shown?", images=[b"\x89PNG\r\n\x1a\n"], options=options)


def test_responses_and_completions_hear(server, client):
    content = [{"type": "input_text", "text": "What is said?"}, PART]
    options = {"model": "hears", "temperature": 0.0, "max_output_tokens": 5}
    silent = client.responses.create(input="What is said?", **options)
    heard = client.responses.create(input=[{"role": "user", "content": content}], **options)
    assert heard.usage.input_tokens > silent.usage.input_tokens + N_AUDIO
    marker = server.client.get("/props").json()["media_marker"]
    prompt = {"prompt_string": f"Once {marker} upon", "multimodal_data": [PART["input_audio"]["data"]]}
    answer = server.client.post("/completion", json={"prompt": prompt, "n_predict": 2})
    assert answer.status_code == 200
    assert answer.json()["tokens_evaluated"] > N_AUDIO


def test_transcriptions_and_translations(client):
    options = {"model": "hears", "file": ("a.wav", WAV), "extra_body": {"max_tokens": 5}}
    made = client.audio.transcriptions.create(**options)
    assert made.text
    assert made.usage.output_tokens <= 5
    assert made.usage.input_token_details.audio_tokens == N_AUDIO
    assert made.usage.input_tokens == made.usage.input_token_details.text_tokens + N_AUDIO
    assert client.audio.transcriptions.create(**options, response_format="text").strip() == made.text
    verbose = client.audio.transcriptions.create(**options, response_format="verbose_json", language="en")
    assert (verbose.duration, verbose.language, verbose.segments[0].end) == (0.4, "en", 0.4)
    *deltas, done = client.audio.transcriptions.create(**options, stream=True)
    assert "".join(event.delta for event in deltas).rstrip() == done.text == made.text
    assert client.audio.translations.create(**options).text


def test_the_event_loop_runs_while_a_chat_stream_encodes(path):
    with pumice.load(path, **OPTIONS) as model:
        asyncio.run(_stream_with_sound(model))


async def _stream_with_sound(model: pumice.Model) -> None:
    threads: list[int] = []
    encode = model.engine.media.encode
    model.engine.media.encode = lambda *media: (threads.append(threading.get_ident()), encode(*media))[1]
    messages = [{"role": "user", "content": [pumice.Audio(WAV), "What is said?"]}]
    stream = model.achat_stream(messages, **GREEDY)
    assert not threads
    answer = await stream.completion()
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    assert len(stream.prompt_tokens) == answer.usage.prompt_tokens
    assert answer.message.content == model.chat(messages, **GREEDY).message.content
    broken = model.achat_stream([{"role": "user", "content": [pumice.Audio(b"RIFF")]}])
    with pytest.raises(pumice.RequestError, match="no sound"):
        await broken.completion()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "srt", "stream": True}, "subtitles are not streamed"),
        ({"timestamp_granularities": ["segment"]}, "must be 'verbose_json'"),
        ({"timestamp_granularities": ["word"], **VERBOSE}, "no timestamps of words"),
        ({"timestamp_granularities": ["line"], **VERBOSE}, "expected 'segment', 'word' or both"),
        ({"temperature": 9}, "temperature"),
        ({"language": "x" * 99}, "language"),
        ({"language": "en[/INST]"}, "language"),
        ({"extra_body": {"max_tokens": "many"}}, "max_tokens"),
        ({"file": ("a.wav", b"")}, "the sound is empty"),
    ],
)
def test_wrong_forms_are_named(client, fields, problem):
    with pytest.raises(openai.BadRequestError, match=problem):
        client.audio.transcriptions.create(**{"model": "hears", "file": ("a.wav", WAV), **fields})


def test_hostile_sounds_get_one_clear_error(server):
    for name, data, _ in hostile_sounds():
        response = server.client.post("/v1/audio/transcriptions", files={"file": ("a.wav", data)})
        message = response.json()["error"]["message"]
        assert response.status_code == 400, name
        assert message.startswith("audio: "), (name, message)
        assert len(message.splitlines()) == 1, name
    assert server.client.post("/v1/audio/transcriptions", json={}).status_code == 400
    assert server.client.get("/health").status_code == 200


def test_models_that_do_not_hear_say_so(tmp_path):
    path = tiny_llama(tmp_path / "tiny.gguf")
    with serving(ModelSpec(["deaf"], str(path), OPTIONS)) as server:
        chat = {"messages": [{"role": "user", "content": [PART]}]}
        for response in (
            server.client.post("/v1/chat/completions", json=chat),
            server.client.post("/v1/audio/transcriptions", files={"file": ("a.wav", WAV)}),
        ):
            assert response.status_code == 400
            assert "this model takes no sound without a projector" in response.json()["error"]["message"]
