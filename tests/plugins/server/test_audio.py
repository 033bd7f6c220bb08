"""Sound in requests, by OpenAI's client; the model is a tiny one with Qwen2-Audio's projector."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator

import numpy as np
import ollama
import pytest
from starlette.exceptions import HTTPException

import pumice
from gguf_files import tiny_llama
from hearing_models import RATE, SHAPES, sound, write_folder
from hostile_sounds import hostile_sounds, pcm, wav
from imported_late import Late
from pumice.audio import MAX_SECONDS, SoundBudget
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from pumice.plugin.unstable import ModelSpec
from pumice.subtitles import subrip, webvtt
from pumice_server import segments, transcriptions
from pumice_server.jobs.form import Field
from pumice_server.segments import Segment, pieces
from pumice_server.service import MediaPrompt, Service
from server_thread import Serving, serving

openai = Late("openai")

pytest.importorskip("soundfile")
pytest.importorskip("soxr")
WAV = wav(pcm(sound(0.4)))
N_AUDIO = 10  # its tokens
PART = {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}}
OPTIONS = {"backend": "numpy", "chat_template": "chatml"}
GREEDY = {"temperature": 0.0, "max_tokens": 5}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hears")
    write_folder(folder / "audio", "qwen2audio", json.loads(SHAPES.read_text())["qwen2audio"]["shapes"])
    with open_model(folder / "audio", options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    return tiny_llama(folder / "tiny.gguf")


@pytest.fixture(scope="module")
def server(path) -> Iterator[Serving]:
    with serving(ModelSpec(["hears"], str(path), OPTIONS)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server) -> "openai.OpenAI":
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


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


def test_names_of_fields_are_shown_as_they_can_be_printed():
    with pytest.raises(HTTPException) as error:
        transcriptions._read({"file": Field(WAV), "a\0" * 500: Field(b"\xff")})
    assert error.value.detail.isprintable()
    assert len(error.value.detail) < 130


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


def test_long_sounds_are_transcribed_in_segments(client, monkeypatch):
    """Each segment is what is said in its piece alone; subtitles have the same times and texts."""
    monkeypatch.setattr(segments, "LONGEST", 2 * RATE)  # which the tiny model's context holds
    monkeypatch.setattr(segments, "_SEARCHED", RATE)
    samples = np.concatenate([sound(2.5), np.zeros(1000, np.float32)])
    file = ("long.wav", wav(pcm(samples)))
    options = {"model": "hears", "file": file, "extra_body": {"max_tokens": 5}}
    made = client.audio.transcriptions.create(
        **options, response_format="verbose_json", timestamp_granularities=["segment"]
    )
    first, last = made.segments
    assert 1 < first.end <= 2
    assert (first.start, first.end, last.end) == (0.0, last.start, len(samples) / RATE)
    assert made.text == f"{first.text} {last.text}"
    piece = ("piece.wav", wav(pcm(samples[round(first.end * RATE) :])))
    alone = client.audio.transcriptions.create(**{**options, "file": piece})
    assert alone.text == last.text
    subtitles = client.audio.transcriptions.create(**options, response_format="srt")
    assert subtitles.startswith("1\n00:00:00,000 --> 00:00:0")
    assert client.audio.transcriptions.create(**options, response_format="vtt").startswith("WEBVTT\n\n00:00:00.000 -->")


def test_cues_hold_their_texts():
    said = [Segment(0, 3661.5, "a <b>\n\n& c --> d"), Segment(3661.5, 3662, " "), Segment(3662, 3663.25, "e")]
    assert subrip(said) == ("1\n00:00:00,000 --> 01:01:01,500\na <b> & c -> d\n\n2\n01:01:02,000 --> 01:01:03,250\ne\n")
    assert webvtt(said) == (
        "WEBVTT\n\n00:00:00.000 --> 01:01:01.500\na &lt;b&gt; &amp; c -&gt; d\n\n01:01:02.000 --> 01:01:03.250\ne\n"
    )


def test_pieces_are_cut_where_it_is_quiet():
    samples = np.ones(70 * RATE, np.float32)
    samples[27 * RATE : 28 * RATE] = 0
    samples[56 * RATE : 57 * RATE] = 0
    (_, first), (start, second), (_, end) = pieces(samples)
    assert 27 * RATE < first == start < 28 * RATE
    assert 56 * RATE < second < 57 * RATE
    assert end == len(samples)
    assert list(pieces(samples[: 30 * RATE])) == [(0, 30 * RATE)]


def test_sounds_of_a_request_are_bounded_together():
    """Their bytes before one is decoded, and their seconds before one is encoded."""
    budget = SoundBudget()
    budget.checked(np.zeros(RATE * MAX_SECONDS - 1, np.float32))
    with pytest.raises(pumice.RequestError, match="more than 30 minutes together"):
        budget.checked(np.zeros(2, np.float32))
    half = pumice.Audio(bytes((16 << 20) + 1))
    budget.check_bytes(half)
    with pytest.raises(pumice.RequestError, match="more than 32 MiB together"):
        budget.check_bytes(half)


def test_the_event_loop_runs_while_a_chat_stream_encodes(path):
    with pumice.load(path, **OPTIONS) as model:
        asyncio.run(_stream_with_sound(model))


async def _stream_with_sound(model: pumice.Model) -> None:
    threads: list[int] = []
    encode = model.engine.media.encode_samples
    model.engine.media.encode_samples = lambda samples: (threads.append(threading.get_ident()), encode(samples))[1]
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
        ({"timestamp_granularities": ["word"], "response_format": "verbose_json"}, "word's times"),
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


def test_voxtral_transcribes_by_its_own_token(server, client, monkeypatch):
    prompts, complete = [], Service.complete

    async def noted(self, given, *others):
        prompts.extend(given)
        return await complete(self, given, *others)

    monkeypatch.setattr(Service, "complete", noted)
    monkeypatch.setattr(transcriptions, "_has_token", lambda *_: True)
    options = {"model": "hears", "file": ("a.wav", WAV), "extra_body": {"max_tokens": 5}}
    made = client.audio.transcriptions.create(**options, language="en")
    (prompt,) = prompts
    assert isinstance(prompt, MediaPrompt)
    assert [part for part in prompt.parts if isinstance(part, str)] == ["[INST]", "[/INST]lang:en[TRANSCRIBE]"]
    assert made.text
    assert made.usage.input_token_details.audio_tokens == N_AUDIO
    client.audio.translations.create(**options)
    assert len(prompts) == 1  # by a chat


def test_qwen3_asr_hears_without_an_instruction(server, client, monkeypatch):
    chats, chat = [], Service.chat

    async def noted(self, messages, *others):
        chats.append(messages)
        return await chat(self, messages, *others)

    monkeypatch.setattr(Service, "chat", noted)
    monkeypatch.setattr(transcriptions, "_has_token", lambda _, text: text == "<asr_text>")
    options = {"model": "hears", "file": ("a.wav", WAV), "extra_body": {"max_tokens": 5}}
    client.audio.transcriptions.create(**options)
    client.audio.transcriptions.create(**options, language="en", prompt="Names: Ada.")
    client.audio.translations.create(**options)
    assert [[message["role"] for message in messages] for messages in chats] == [["user"], ["system", "user"], ["user"]]
    assert [len(messages[-1]["content"]) for messages in chats] == [1, 1, 2]
    assert chats[1][0]["content"] == "The language spoken is 'en'. Names: Ada."
    done = pumice.Completion("language English<asr_text> Hello.", [], "stop", pumice.Timings())
    assert transcriptions._text(done) == "Hello."
    written = [
        "l",
        "language En",
        "language English<asr_text>",
        "language English<asr_text> Hel",
        "Language",
        " Hel lo",
    ]
    assert [transcriptions._certain(text) for text in written] == ["", "", "", "Hel", "Language", "Hel lo"]


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
