"""Chat templates: an error in one line, or the same text each time."""

from collections.abc import Iterable
from functools import cache

from family_templates import FAMILIES
from pumice.chat.isolated import TemplateWorkers
from pumice.chat.prompt import PromptJob
from pumice.chat.template import ChatTemplate
from pumice.errors import ModelError, RequestError, TooExpensiveError
from pumice.isolation import CallLimits, WorkerPool

MODULES = ("pumice.chat.prompt", "pumice.chat.template")
MAX_LEN = 700
RUNS = 100
_CALL = {"function": {"name": "f", "arguments": {"x": [1, None, 0.5]}}}
_MESSAGES = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "a <b> {{ c }}"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
]
_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
_WORDS = (
    "{{ ", " }}", "{% ", " %}", "{# ", " #}", "for m in messages", "endfor", "if ", "elif ", "else", "endif", "set ",
    "endset", "macro f(x)", "endmacro", "namespace(a=1)", "loop.index", "messages[0]", ".content", "|tojson", "|length",
    "|trim", "|join(',')", "|selectattr('role')", "|map(attribute='role')", "is defined", "is iterable", " ~ ",
    "range(9999)", "raise_exception('x')", "strftime_now('%Y')", "__class__", "__globals__", ".append(1)", ".split()",
    ".items()", "[::-1]", "|indent(2)", "|string", "|format(1)", "|replace('a','b')", "**", "//", "|dictsort", "break",
)  # fmt: skip
TOKENS = tuple(word.encode() for word in _WORDS)
_SEEDS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns|tojson }}",
    "{%- macro f(x) -%}{{ x|tojson }}{%- endmacro -%}{{ f(tools) }}{{ strftime_now('%d') }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(', ') }}",
)


def seeds() -> Iterable[bytes]:
    for source in (*_SEEDS, *FAMILIES.values()):
        if len(source.encode()) < MAX_LEN:
            yield source.encode()


@cache
def _workers() -> TemplateWorkers:
    limits = CallLimits(cpu_seconds=1, memory=600 << 20)
    return TemplateWorkers(WorkerPool("rendering the chat template", limits, n_workers=1))


def check(data: bytes) -> None:
    job = PromptJob(ChatTemplate(data.decode(errors="replace"), "<s>"), (), ("", "", ""), _MESSAGES, _TOOLS)
    try:
        text = _workers().write(job).text
    except (ModelError, RequestError, TooExpensiveError) as error:
        assert "\n" not in str(error), str(error)
        return
    if b"strftime_now" not in data and " at 0x" not in text:  # where a function or a generator lies
        assert _workers().write(job).text == text
