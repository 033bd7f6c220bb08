"""Chat templates in worker processes: nothing of a file or a client is compiled or rendered in this one."""

from __future__ import annotations

import functools

from pumice.chat.prompt import MarkedPrompt, PromptJob
from pumice.chat.rendering import Description
from pumice.chat.template import ChatTemplate
from pumice.isolation import Limits, WorkerPool

_TASKS = "pumice.chat.rendering"
_LIMITS = Limits(max_in=1 << 26)  # room for the characters of a request in UTF-8, and marks


class TemplateWorkers:
    """Describe and render chat templates. Both raise as ``WorkerPool.call``, beside what they raise themselves."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self.pool = pool or WorkerPool("rendering the chat template", _LIMITS)

    def describe(self, template: ChatTemplate) -> Description:
        """Return what a template can do. Raises ModelError if it is none."""
        return self.pool.call(f"{_TASKS}:describe", template, Description)

    def write(self, job: PromptJob) -> MarkedPrompt:
        """Return the text of a prompt. Raises RequestError if the template refuses the messages."""
        return self.pool.call(f"{_TASKS}:write", job, MarkedPrompt)


@functools.cache
def template_workers() -> TemplateWorkers:
    """Return the workers that all models of this process share."""
    return TemplateWorkers()
