"""A loaded model as one request sees it: its name, adapters, time and options, completed with those of the server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pumice
from pumice.options import OUTPUT, QueueOptions
from pumice_server import logs
from pumice_server.models.model_service import ModelService
from pumice_server.models.model_texts import ModelTexts
from pumice_server.models.variant import Variant


@dataclass(frozen=True)
class View:
    """What is peculiar to a request among those of a loaded model.

    Attributes:
        name: Name of the model in answers; None for its first one.
        adapter: The only adapter, if the request names the model by it.
        timeout: Seconds for the request; None for the server's.
        variant: How chats begin.
        defaults: Options of generation that the request need not give.
    """

    name: str | None = None
    adapter: str | None = None
    timeout: float | None = None
    variant: Variant = field(default_factory=Variant)
    defaults: Mapping[str, Any] = field(default_factory=dict)


class RequestView(ModelTexts):
    """A loaded model as one request sees it. Answers carry its name."""

    def __init__(self, shared: ModelService, view: View = View()) -> None:
        super().__init__(shared.model)
        settings = shared.settings
        self.name = view.name or shared.name
        self.adapter, self.timeout = view.adapter, view.timeout or settings.timeout
        self.slots, self.assumed_template = shared.slots, shared.assumed_template
        self.scales = shared.scales
        if view.adapter is not None:
            self.scales = {other: float(other == view.adapter) for other in shared.scales}
        self.voices, self.pooling, self.max_sequences = settings.voices, settings.pooling, settings.max_sequences
        self.compat, self.verbose = settings.compat, settings.compat and settings.verbose
        self.fingerprint = shared.fingerprint
        self.stop = view.defaults.get("stop", settings.stop)
        self._defaults = {key: value for key, value in view.defaults.items() if value is not None and key != "stop"}
        self.shared, self.view, self.variant = shared, view, view.variant
        self.always: dict[str, Any] = {"timeout": self.timeout, "context_shift": settings.context_shift}
        assumed = {"chat_template": self.assumed_template} if self.assumed_template else {}
        self._chat = {**assumed, **settings.chat}
        self._output, self._max_tokens, self.media_hosts = settings.output, settings.max_tokens, settings.media_hosts

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a chat, completed with the server's defaults."""
        present = {name: value for name, value in options.items() if value is not None}
        # llama-server gives templates this variable.
        today = {"date_string": time.strftime("%d %b %Y")} if self.compat else {}
        variables = {**today, **self._chat.get("template_variables", {}), **present.get("template_variables", {})}
        return {**self._chat, **present, "template_variables": variables}

    def terms(self, priority: int = 0) -> QueueOptions:
        """Return the options by which requests without tokens wait."""
        return {"priority": priority, "timeout": self.timeout}

    @property
    def adapters(self) -> dict[str, float]:
        """Scales of adapters, and of control vectors, which requests cannot change."""
        return {**self.model.config.adapter_scales, **self.scales}

    def shaped(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options with the server's grammar or schema, unless they set a format of the text, or name tools."""
        says = any(options.get(name) not in (None, False) for name in (*OUTPUT, "response_format"))
        return options if says or options.get("tools") else {**self._output, **options}

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with the server's adapter scales as defaults, and with its limit of tokens."""
        present = {name: value for name, value in options.items() if value is not None or name not in self._defaults}
        completed = {"adapters": self.adapters, "request_id": logs.request_id(), **self._defaults, **present}
        return {**completed, "max_tokens": self.most_tokens(completed.get("max_tokens"))}

    def within_context(self, request: pumice.Request) -> pumice.Request:
        """Return a request for ``compat``, whose context is full with its last token, not with the one after it."""
        room, asked = max(1, self.model.n_ctx - len(request.prompt)), request.max_tokens
        if not self.compat or request.context_shift or (asked is not None and asked <= room):
            return request
        return replace(request, max_tokens=room)

    def most_tokens(self, asked: int | None) -> int | None:
        """Return the maximum tokens of an answer; None for no limit.

        The server's number is an upper limit; with ``compat`` it is a default.
        """
        most = self._max_tokens
        allowed = isinstance(asked, int) and asked >= 0 and (self.compat or asked <= most)
        return asked if most < 0 or allowed else most

    def seeded(self, request: pumice.Request, n: int) -> list[pumice.Request]:
        """Return the requests of ``n`` completions; a given or configured seed increases by one for each."""
        seed = request.sampling.get("seed", self.model.config.sampling.get("seed", -1))
        if n == 1 or not isinstance(seed, int) or seed < 0:
            return [request] * n
        return [replace(request, sampling={**request.sampling, "seed": seed + i}) for i in range(n)]
