"""Chat templates: an error, or the same text each time, which shows no Python object."""

from collections.abc import Iterable

from family_templates import FAMILIES
from pumice.chat.jinja import MAX_OUTPUT, JinjaTemplate
from pumice.errors import ModelError, RequestError

MODULES = ("pumice.chat.jinja",)
MAX_LEN = 700
_CALL = {"function": {"name": "f", "arguments": {"x": [1, None, 0.5]}}}
_MESSAGES = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "a <b> {{ c }}"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
]
CONTEXT = {
    "messages": _MESSAGES,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
}
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


def check(data: bytes) -> None:
    try:
        template = JinjaTemplate(data.decode(errors="replace"))
        text = template.render(CONTEXT)
    except (ModelError, RequestError) as error:
        assert "\n" not in str(error), str(error)
        return
    assert len(text) <= MAX_OUTPUT
    assert "<class '" not in text
    assert " object at 0x" not in text
    if b"strftime_now" not in data:
        assert template.render(CONTEXT) == text
