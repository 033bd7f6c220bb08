"""An engine in a Ray actor on any machine with room: the remote end of a ``RayLink``."""

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
from pumice.local_engine import local_engine
from pumice.process.codec import Load, Loaded, NotLoaded, decode_command, encode_events, encode_report
from pumice.process.engine_host import EngineHost
from pumice.process_list import RunningModel, listed
from pumice_ray.mailbox import Mailbox

NAME = "pumice-engine-"  # prefix of actor names, followed by a unique part
WORKER = "worker"  # command shown by `pumice ps` for engines of batches


class EngineActor:
    """The actor class. Its engine runs in one thread; another executes commands, so events are never delayed.

    Messages are those of ``pumice.process.codec``, as bytes.
    """

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stack = ExitStack()
        self._loaded = asyncio.Event()

    async def load(self, name: str, options: Mapping[str, Any]) -> bytes:
        """Load a model by its name or path on this machine; return ``Loaded`` or ``NotLoaded``."""
        self._mailbox = Mailbox()
        try:
            model = await asyncio.to_thread(pumice.load, name, **own_devices(options))
            self._stack.callback(model.close)
            engine = local_engine(model)
            await asyncio.to_thread(engine.open_media)
        except Exception as error:
            await asyncio.to_thread(self._stack.close)
            return encode_report(NotLoaded(error))
        self._running = RunningModel("ray", name, model.backends, model.memory, model.n_ctx, own_address())
        self._stack.enter_context(listed(self._running))
        self._host = EngineHost(engine, self._mailbox.put)
        threading.Thread(target=self._obey, name="pumice-commands", daemon=True).start()
        self._loaded.set()
        return encode_report(Loaded(model.facts))

    async def describe(self) -> dict[str, Any]:
        """Return the fields of ``RunningModel`` for ``pumice ps --ray``. Waits until the model is loaded."""
        await self._loaded.wait()
        return asdict(self._running)

    async def send(self, command: bytes) -> None:
        self._commands.put(command)

    async def receive(self) -> list[bytes] | None:
        """Return the next events; None once the engine is closed."""
        events = await self._mailbox.take()
        return None if events is None else list(encode_events(events))

    async def close(self) -> None:
        """Cancel all requests and release the engine's resources."""
        self._commands.put(None)
        await asyncio.to_thread(self._stack.close)
        self._mailbox.close()

    def _obey(self) -> None:
        while (data := self._commands.get()) is not None:
            command = decode_command(data)
            if not isinstance(command, (Load, Close)):
                self._host.obey(command)


def own_address() -> str:
    """Return this machine's address in the cluster."""
    import ray

    return str(ray.util.get_node_ip_address())


def own_devices(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of ``pumice.load`` with the GPUs that Ray assigned to this actor, unless they name devices.

    Ray names GPUs like ``CUDA_VISIBLE_DEVICES``: by numbers or UUIDs.
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
