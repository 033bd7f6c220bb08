"""Messages in bytes of actors, which are objects of this process here, without a cluster."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")

import pocket_models
import pumice
import pumice_ray.actor
import pumice_ray.replica
from pumice.engine import messages
from pumice.process.codec import decode_events, decode_facts, encode_command
from pumice.speech_model import SpokenText
from pumice_ray.actor import EngineActor
from pumice_ray.replica import EngineReplica
from waiting import PATIENCE

OPTIONS = {"backend": "numpy"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for module in (pumice_ray.actor, pumice_ray.replica):
        monkeypatch.setattr(module, "own_address", lambda: "here")
        monkeypatch.setattr(module, "own_devices", dict)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def last_of(events: list[messages.Event]) -> messages.Event | None:
    return next((event for event in events if isinstance(event, (messages.Finished, messages.Failed))), None)


def test_an_engine_in_an_actor_speaks_in_bytes(path):
    async def ask() -> None:
        actor = EngineActor()
        facts = decode_facts(await actor.load(path, OPTIONS))
        assert facts.backends == ["numpy"]
        assert (await actor.describe())["command"] == "ray"
        request = messages.Request([5, 6], max_tokens=3, sampling={"temperature": 0.0})
        await actor.send(encode_command(messages.Add([7], request)))
        heard: list[messages.Event] = []
        while not last_of(heard):
            for data in await actor.receive() or []:
                heard += decode_events(data)
        assert sum(len(event.tokens) for event in heard if isinstance(event, messages.Output)) == 3
        await actor.close()
        assert await actor.receive() is None

    run(ask())


def test_an_actor_speaks_with_a_speech_model(tmp_path):
    path = str(pocket_models.write_converted(tmp_path / "pocket"))

    async def ask() -> None:
        actor = EngineActor()
        assert decode_facts(await actor.load(path, OPTIONS)).speech == "pockettts_gen"
        await actor.send(encode_command(messages.Speak(3, SpokenText("a", [1, 2], [], 2, 0), 0.0)))
        heard: list[messages.Event] = []
        while not heard or isinstance(heard[-1], messages.SpeechPart):
            for data in await actor.receive() or []:
                heard += decode_events(data)
        assert heard[-1] == messages.SpeechEnded(3, 2)
        assert sum(len(event.samples) for event in heard if isinstance(event, messages.SpeechPart)) == 2 * 1920
        await actor.close()

    run(ask())


def made_replica(path, monkeypatch):
    class Gauges:
        def __init__(self, *_: object) -> None:
            self.set: Any = lambda snapshot: None

    monkeypatch.setattr(pumice_ray.replica, "Gauges", Gauges)
    monkeypatch.setattr(pumice_ray.replica, "own_name", lambda: "replica")
    return EngineReplica(path, OPTIONS, "name")


@pytest.mark.parametrize("last", [{"state": "REMOVED"}, {}])
def test_a_replica_ends_with_its_owner_however_ray_answers(monkeypatch, last):
    answers = iter([RuntimeError("no reply"), {"state": "CREATED"}, last])

    def table(owner: object) -> object:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    codes: list[int] = []
    monkeypatch.setattr("ray.util.placement_group_table", table)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("os._exit", codes.append)
    pumice_ray.replica._end_with(object())  # outside of Serve, deleting the application fails, too
    assert codes == [0]
    assert not list(answers)


@pytest.fixture
def replica(path, monkeypatch):
    return made_replica(path, monkeypatch)


def test_a_replica_speaks_in_bytes(replica):
    async def ask() -> None:
        assert decode_facts(await replica.facts()).generates
        assert (await replica.describe())["command"] == "serve"
        command = encode_command(messages.Add([7], messages.Request([5, 6], max_tokens=3)))
        heard: list[messages.Event] = []

        async def listen() -> None:
            async for data in replica.listen("replica", "asker"):
                heard.extend(decode_events(data))

        listening = asyncio.create_task(listen())
        assert [name async for name in replica.generate(command, "asker")] == ["replica"]
        assert isinstance(last_of(heard), messages.Finished)
        (scored,) = decode_events(await replica.answer(encode_command(messages.Score(1, [5, 6, 7]))))
        assert len(scored.value) == 2
        image = messages.EncodeMedia(1, "image", [1, 1, 3], bytes(3))
        (failed,) = decode_events(await replica.answer(encode_command(image)))
        assert "takes no images without a projector" in str(failed.error)
        (answer,) = decode_events(await replica.snapshot())
        assert isinstance(answer, messages.Inspected)
        await replica.check_health()
        await listening
        with pytest.raises(pumice.EngineDiedError):
            await anext(replica.listen("another", "asker"))

    run(ask())
