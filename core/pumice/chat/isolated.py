"""Run chat templates in worker processes: templates of files and clients are never compiled in this process."""

from __future__ import annotations

import functools

from pumice.chat.prompt import MarkedPrompt, PromptJob
from pumice.chat.rendering import Description
from pumice.chat.template import ChatTemplate
from pumice.isolation import CallLimits, WorkerPool

_TASKS = "pumice.chat.rendering"
_LIMITS = CallLimits(max_in=1 << 26)  # bytes: a request's characters in UTF-8, and marks


class TemplateWorkers:
    """Describes and renders chat templates. Beside its own errors, each method raises like ``WorkerPool.call``."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self.pool = pool or WorkerPool("rendering the chat template", _LIMITS)

    def describe(self, template: ChatTemplate) -> Description:
        """Return a template's traits, capabilities and format. Raises ModelError if it is not valid Jinja."""
        return self.pool.call(f"{_TASKS}:describe", template, Description)

    def write(self, job: PromptJob) -> MarkedPrompt:
        """Render a prompt. Raises RequestError if the template refuses the messages."""
        return self.pool.call(f"{_TASKS}:write", job, MarkedPrompt)


@functools.cache
def template_workers() -> TemplateWorkers:
    """Return the workers that all models of this process share."""
    return TemplateWorkers()
