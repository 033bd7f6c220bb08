"""A server whose model says what it is told, and which runs the tools of an MCP server that misbehaves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pumice
from pumice.engine import Timings
from pumice.mcp import hosted_tools, read_servers
from pumice_server.application import make_application, run_tools
from pumice_server.command.allowed_tools import _only
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings
from server_thread import Running, listening

USAGE = pumice.Usage(20, 5, 9, 3)

Answer = str | Sequence[pumice.ToolCall]
"""What the model says: a text, or calls."""


class Said:
    """A stream of one answer, in deltas."""

    timings = Timings(20, 5, 0.0, 0.1, 9, 0.2)
    prompt_tokens = [0] * 20

    def __init__(self, deltas: Sequence[pumice.ChatDelta], reason: Any) -> None:
        texts = ["".join(getattr(delta, name) for delta in deltas) for name in ("content", "reasoning")]
        message = pumice.Message(*texts, [call for delta in deltas for call in delta.tool_calls])
        self._done = pumice.ChatCompletion(message, reason, USAGE, [0])
        self._coming = iter([*deltas, pumice.ChatDelta(finish_reason=reason, usage=USAGE)])

    @classmethod
    def of(cls, answer: Answer) -> "Said":
        if isinstance(answer, str):
            return cls([pumice.ChatDelta(content=answer)], "stop")
        return cls([pumice.ChatDelta(tool_calls=[call]) for call in answer], "tool_calls")

    async def ready(self) -> list[pumice.ChatDelta]:
        return list(islice(self._coming, 1))

    async def accepted(self) -> None:
        pass

    async def completion(self) -> pumice.ChatCompletion:
        return self._done

    def close(self) -> None:
        pass


class ScriptedModel:
    """A model that says ``script`` in order and then "Done."; ``asked`` has the messages and options of each answer."""

    def __init__(self, model: pumice.Model) -> None:
        self._model = model
        self.script: list[Answer] = []
        self.asked: list[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def template(self) -> Any:
        real = self._model.template
        return SimpleNamespace(exists=real.exists, capabilities=real.capabilities, prepare=self._prepare)

    def _prepare(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> pumice.PreparedChat:
        self.asked.append(([*messages], options))
        plain = {name: value for name, value in options.items() if name not in ("tools", "tool_choice")}
        return self._model.template.prepare([{"role": "user", "content": "Once"}], **plain)

    def achat_stream(self, chat: pumice.PreparedChat, **options: Any) -> Said:
        return Said.of(self.script.pop(0) if self.script else "Done.")


@contextmanager
def tool_server(model: pumice.Model, servers: Mapping[str, Mapping[str, Any]], **settings: Any) -> Iterator[Running]:
    """A server that runs all tools of MCP servers, which are configured as by the user."""
    scripted = ScriptedModel(model)
    with hosted_tools(
        {name: _only(server, None) for name, server in read_servers({"mcpServers": servers}).items()}
    ) as hosted:

        @asynccontextmanager
        async def lifespan(_: object):
            hosted.start()
            if jobs := application.state.jobs:
                jobs.start()
            yield
            if jobs:
                await jobs.stop()

        application = make_application(Models.of(scripted, ["demo"], Settings(**settings)), lifespan)
        run_tools(application, hosted)
        with listening(application) as (url, client):
            yield Running(url, scripted, client, application)
