"""Messages in bytes of actors, which are objects of this process here, without a cluster."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")

import pocket_models
import pumice
import pumice_ray.actor
import pumice_ray.replica
from gguf_files import tiny_llama
from pumice.engine.messages import (
    Add,
    Cancel,
    EncodeImage,
    Event,
    Failed,
    Finished,
    Inspect,
    Inspected,
    Output,
    ReleaseMedia,
    Request,
    Score,
    Span,
    Speak,
    SpeechEnded,
    SpeechPart,
)
from pumice.process.codec import CodecError, decode_events, decode_facts, encode_command
from pumice.speech_model import SpokenText
from pumice_ray.actor import EngineActor
from pumice_ray.replica import EngineReplica
from vision_files import picture, write_projector
from waiting import PATIENCE

OPTIONS = {"backend": "numpy"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("actors") / "tiny.gguf"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for module in (pumice_ray.actor, pumice_ray.replica):
        monkeypatch.setattr(module, "own_address", lambda: "here")
        monkeypatch.setattr(module, "own_devices", dict)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def last_of(events: list[Event]) -> Event | None:
    return next((event for event in events if isinstance(event, (Finished, Failed))), None)


def test_an_engine_in_an_actor_speaks_in_bytes(path):
    async def ask() -> None:
        actor = EngineActor()
        facts = decode_facts(await actor.load(path, OPTIONS))
        assert facts.backends == ["numpy"]
        assert (await actor.describe())["command"] == "ray"
        await actor.send(encode_command(Add([7], Request([5, 6], max_tokens=3, sampling={"temperature": 0.0}))))
        heard: list[Event] = []
        while not last_of(heard):
            for data in await actor.receive() or []:
                heard += decode_events(data)
        assert sum(len(event.tokens) for event in heard if isinstance(event, Output)) == 3
        await actor.close()
        assert await actor.receive() is None

    run(ask())


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sees")
    write_projector(folder / "mmproj.gguf", "mlp")
    return str(tiny_llama(folder / "tiny.gguf"))


def image_command(keep):
    pixels = picture(50, 30)
    return encode_command(EncodeImage(1, *pixels.shape[:2], pixels.tobytes(), keep))


def test_an_actor_keeps_the_rows_of_an_image(seeing):
    options = {"max_tokens": 3, "sampling": {"temperature": 0.0}}
    with pumice.load(seeing, **OPTIONS) as model:
        request = model.request([pumice.Image(picture(50, 30)), "a"], max_tokens=3, temperature=0.0)
        expected = model.generate([pumice.Image(picture(50, 30)), "a"], max_tokens=3, temperature=0.0).tokens

    async def ask() -> None:
        actor = EngineActor()
        assert decode_facts(await actor.load(seeing, OPTIONS)).media == ["image"]
        await actor.send(image_command(True))
        (data,) = await actor.receive() or []
        (encoded,) = decode_events(data)
        assert all(part.rows is None for part in encoded.parts)
        (kept,) = [part.kept for part in encoded.parts if part.kept]
        spans = [Span(request.media[0].start, None, request.media[0].grid, kept=kept)]
        await actor.send(encode_command(Add([7], Request(request.prompt, media=spans, **options))))
        await actor.send(encode_command(ReleaseMedia(1)))
        heard: list[Event] = []
        while not last_of(heard):
            for data in await actor.receive() or []:
                heard += decode_events(data)
        assert [token for event in heard if isinstance(event, Output) for token in event.tokens] == expected
        assert not actor._host._kept._kept
        await actor.close()

    run(ask())


def test_a_replica_sends_the_rows_of_an_image(seeing, monkeypatch):
    replica = made_replica(seeing, monkeypatch)

    async def ask() -> None:
        assert decode_facts(await replica.facts()).media == ["image"]
        (encoded,) = decode_events(await replica.answer(image_command(False)))
        assert any(part.rows is not None for part in encoded.parts)

    run(ask())


def test_an_actor_speaks_with_a_speech_model(tmp_path):
    path = str(pocket_models.write_converted(tmp_path / "pocket"))

    async def ask() -> None:
        actor = EngineActor()
        assert decode_facts(await actor.load(path, OPTIONS)).speech == "pockettts_gen"
        await actor.send(encode_command(Speak(3, SpokenText("a", [1, 2], [], 2, 0), 0.0)))
        heard: list[Event] = []
        while not heard or isinstance(heard[-1], SpeechPart):
            for data in await actor.receive() or []:
                heard += decode_events(data)
        assert heard[-1] == SpeechEnded(3, 2)
        assert sum(len(event.samples) for event in heard if isinstance(event, SpeechPart)) == 2 * 1920
        await actor.close()

    run(ask())


def test_an_actor_that_cannot_load_says_why(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(pumice.GGUFError):
        decode_facts(run(EngineActor().load(str(tmp_path / "bad.gguf"), OPTIONS)))


def made_replica(path, monkeypatch):
    class Gauges:
        def __init__(self, *_: object) -> None:
            self.set: Any = lambda snapshot: None

    monkeypatch.setattr(pumice_ray.replica, "Gauges", Gauges)
    monkeypatch.setattr(pumice_ray.replica, "own_name", lambda: "replica")
    return EngineReplica(path, OPTIONS, "name")


@pytest.fixture
def replica(path, monkeypatch):
    return made_replica(path, monkeypatch)


def test_a_replica_speaks_in_bytes(replica):
    async def ask() -> None:
        assert decode_facts(await replica.facts()).generates
        assert (await replica.describe())["command"] == "serve"
        command = encode_command(Add([7], Request([5, 6], max_tokens=3)))
        heard: list[Event] = []

        async def listen() -> None:
            async for data in replica.listen("replica", "asker"):
                heard.extend(decode_events(data))

        listening = asyncio.create_task(listen())
        assert [name async for name in replica.generate(command, "asker")] == ["replica"]
        assert isinstance(last_of(heard), Finished)
        (scored,) = decode_events(await replica.answer(encode_command(Score(1, [5, 6, 7]))))
        assert len(scored.logprobs) == 2
        (failed,) = decode_events(await replica.answer(encode_command(EncodeImage(1, 1, 1, bytes(3)))))
        assert "takes no images without a projector" in str(failed.error)
        (answer,) = decode_events(await replica.snapshot())
        assert isinstance(answer, Inspected)
        await replica.check_health()
        await listening
        with pytest.raises(pumice.EngineDiedError):
            await anext(replica.listen("another", "asker"))

    run(ask())


def test_a_replica_speaks_with_a_speech_model(tmp_path, path, monkeypatch):
    class Gauges:
        def __init__(self, *_: object) -> None:
            self.set: Any = lambda snapshot: None

    monkeypatch.setattr(pumice_ray.replica, "Gauges", Gauges)
    monkeypatch.setattr(pumice_ray.replica, "own_name", lambda: "replica")
    path = str(pocket_models.write_converted(tmp_path / "pocket"))

    async def ask() -> None:
        replica = EngineReplica(path, OPTIONS, "name")
        assert decode_facts(await replica.facts()).speech == "pockettts_gen"
        command = encode_command(Speak(7, SpokenText("a", [1, 2], [], 2, 0), 0.0))
        heard: list[Event] = []

        async def listen() -> None:
            async for data in replica.listen("replica", "asker"):
                heard.extend(decode_events(data))

        listening = asyncio.create_task(listen())
        assert [name async for name in replica.generate(command, "asker")] == ["replica"]
        assert heard[-1] == SpeechEnded(7, 2)
        assert sum(len(event.samples) for event in heard[:-1] if isinstance(event, SpeechPart)) == 2 * 1920
        await listening

    run(ask())


@pytest.mark.parametrize("said", [b"garbage", encode_command(Cancel(1)), encode_command(Inspect(1))])
def test_invalid_requests_are_refused(replica, said):
    with pytest.raises((CodecError, pumice.RequestError)):
        run(anext(replica.generate(said, "asker")))
    with pytest.raises((CodecError, pumice.RequestError)):
        run(replica.answer(said))
