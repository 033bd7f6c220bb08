"""An engine in an actor, on whatever machine Ray finds room: the far end of a ``RayLink``."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pumice
from pumice.engine.messages import Close
from pumice.process.codec import Load, Loaded, NotLoaded, decode_command, encode_events, encode_report
from pumice.process.host import EngineHost
from pumice.running import Running, told
from pumice_ray.mailbox import Mailbox

NAME = "pumice-engine-"  # of actors, with what makes it unique
WORKER = "worker"  # the command that `pumice ps` shows for the engines of batches


class EngineActor:
    """The class of the actor. Its engine is a thread; another obeys, so that no event waits for it.

    Messages are those of ``pumice.process.codec``, as bytes.
    """

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stack = ExitStack()
        self._loaded = asyncio.Event()

    async def load(self, name: str, options: Mapping[str, Any]) -> bytes:
        """Load a model by its name or path on this machine: ``Loaded``, or ``NotLoaded``."""
        self._mailbox = Mailbox()
        try:
            model = await asyncio.to_thread(pumice.load, name, **own_devices(options))
        except Exception as error:
            return encode_report(NotLoaded(error))
        self._stack.callback(model.close)
        self._running = Running("ray", name, model.backends, model.memory, model.n_ctx, own_address())
        self._stack.enter_context(told(self._running))
        self._host = EngineHost(model, self._mailbox.put)
        threading.Thread(target=self._obey, name="pumice-commands", daemon=True).start()
        self._loaded.set()
        return encode_report(Loaded(model.facts))

    async def describe(self) -> dict[str, Any]:
        """The fields of ``Running``, for ``pumice ps --ray``; waits until the model is loaded."""
        await self._loaded.wait()
        return asdict(self._running)

    async def send(self, command: bytes) -> None:
        self._commands.put(command)

    async def receive(self) -> list[bytes] | None:
        """The next events; None when the engine was closed."""
        events = await self._mailbox.take()
        return None if events is None else list(encode_events(events))

    async def close(self) -> None:
        """Cancel everything, and give back what the engine ran on."""
        self._commands.put(None)
        await asyncio.to_thread(self._stack.close)
        self._mailbox.close()

    def _obey(self) -> None:
        while (data := self._commands.get()) is not None:
            command = decode_command(data)
            if not isinstance(command, (Load, Close)):
                self._host.obey(command)


def own_address() -> str:
    """Of this machine, in the cluster."""
    import ray

    return str(ray.util.get_node_ip_address())


def own_devices(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of ``pumice.load``, with the devices that Ray keeps for this actor where they name none.

    Ray names GPUs as ``CUDA_VISIBLE_DEVICES`` does: by numbers, or by UUIDs.
    """
    import ray

    context = ray.get_runtime_context()
    config = dict(options.get("config", {}))
    gpus = [int(gpu) if gpu.isdecimal() else gpu for gpu in context.get_accelerator_ids().get("GPU", [])]
    threads = int(context.get_assigned_resources().get("CPU", 0))
    if gpus:
        config["vulkan"] = {"devices": gpus, **config.get("vulkan", {})}
    if threads:
        config["cpu"] = {"threads": threads, **config.get("cpu", {})}
    return {**options, "config": config}
