"""Chat templates in the manner of families of models, written for the tests: each writes calls as its family does."""

from collections.abc import Callable
from typing import Any

from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

_TURNS = """
{%- if tools %}{{- '<|im_start|>system\n' }}{% for tool in tools %}{{- tool | tojson }}{{- '\n' }}{% endfor %}
{{- '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|im_start|>assistant\n' + message.content }}
        CALLS
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' and message.reasoning_content %}
        {{- '<|im_start|>assistant\n<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' }}
        {{- message.content.split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}
"""


def _calls(source: str) -> str:
    return _TURNS.replace("CALLS", source)


_EACH = "{%- for call in message.tool_calls %}{% set function = call.function %}"
_PARAMS = "{%- for key, value in function.arguments.items() %}"
_VALUE = "(value if value is string else value | tojson)"

FAMILIES: dict[str, str] = {
    "hermes": _calls(
        _EACH + """{{- '\n<tool_call>\n{"name": "' + function.name + '", "arguments": ' }}
        {{- function.arguments | tojson }}{{- '}\n</tool_call>' }}{% endfor %}"""
    ),
    "qwen3-coder": _calls(
        _EACH + """{{- '\n<tool_call>\n<function=' + function.name + '>\n' }}"""
        + _PARAMS + "{{- '<parameter=' + key + '>\n' + " + _VALUE + " + '\n</parameter>\n' }}{% endfor %}"
        "{{- '</function>\n</tool_call>' }}{% endfor %}"
    ),
    "glm": _calls(
        _EACH + "{{- '\n<tool_call>' + function.name + '\n' }}"
        + _PARAMS + "{{- '<arg_key>' + key + '</arg_key>\n<arg_value>' + " + _VALUE
        + " + '</arg_value>\n' }}{% endfor %}"
        "{{- '</tool_call>' }}{% endfor %}"
    ),
    "minimax-m2": _calls(
        "{{- '\n<minimax:tool_call>\n' }}" + _EACH + """{{- '<invoke name="' + function.name + '">\n' }}"""
        + _PARAMS + """{{- '<parameter name="' + key + '">' + """ + _VALUE + " + '</parameter>\n' }}{% endfor %}"
        "{{- '</invoke>\n' }}{% endfor %}{{- '</minimax:tool_call>' }}"
    ),
    "deepseek": _calls(
        "{{- '<｜tool▁calls▁begin｜>' }}" + _EACH
        + "{{- '<｜tool▁call▁begin｜>' + function.name + '<｜tool▁sep｜>' + (function.arguments | tojson) }}"
        "{{- '<｜tool▁call▁end｜>' }}{% endfor %}{{- '<｜tool▁calls▁end｜>' }}"
    ),
    "kimi-k2": _calls(
        "{{- '<|tool_calls_section_begin|>' }}" + _EACH
        + "{{- '<|tool_call_begin|>functions.' + function.name + ':' + (loop.index0 | string) }}"
        "{{- '<|tool_call_argument_begin|>' + (function.arguments | tojson) + '<|tool_call_end|>' }}{% endfor %}"
        "{{- '<|tool_calls_section_end|>' }}"
    ),
    "mistral": _calls(
        """{{- '[TOOL_CALLS][' }}""" + _EACH + """{{- '{"name": "' + function.name + '", "arguments": ' }}
        {{- (function.arguments | tojson) + ', "id": "' + call.id + '"}' }}
        {%- if not loop.last %}{{- ', ' }}{% endif %}{% endfor %}{{- ']' }}"""
    ),
    "nemotron": _calls(
        """{{- '<TOOLCALL>[' }}""" + _EACH + """{{- '{"name": "' + function.name + '", "arguments": ' }}
        {{- (function.arguments | tojson) + '}' + ('' if loop.last else ', ') }}{% endfor %}{{- ']</TOOLCALL>' }}"""
    ),
    "command-r7b": _calls(
        """{{- '<|START_ACTION|>[\n' }}""" + _EACH + """{{- '    {"tool_call_id": "' + (loop.index0 | string) }}
        {{- '", "tool_name": "' + function.name + '", "parameters": ' + (function.arguments | tojson) + '}' }}
        {%- if not loop.last %}{{- ',' }}{% endif %}{{- '\n' }}{% endfor %}{{- ']<|END_ACTION|>' }}
        {#- CHATBOT_TOKEN: '<|CHATBOT_TOKEN|>' #}"""
    ),
    "functionary-v3.1": _calls(
        _EACH + "{{- '<function=' + function.name + '>' + (function.arguments | tojson) + '</function>' }}{% endfor %}"
        "{#- '<|start_header_id|>' #}"
    ),
    "lfm2.5": _calls(
        "{{- '<|tool_call_start|>[' }}" + _EACH + "{{- function.name + '(' }}" + _PARAMS
        + """{{- key + '=' + (('"' + (value | replace('"', '\\\\"')) + '"') if value is string else value | tojson) }}
        {%- if not loop.last %}{{- ', ' }}{% endif %}{% endfor %}{{- ')' + ('' if loop.last else ', ') }}{% endfor %}
        {{- ']<|tool_call_end|>' }}"""
    ),
    "functiongemma": _calls(
        _EACH + "{{- '<start_function_call>call:' + function.name + '{' }}" + _PARAMS
        + "{{- key + ':' + ('<escape>' + value + '<escape>' if value is string else value | tojson) }}"
        "{%- if not loop.last %}{{- ',' }}{% endif %}{% endfor %}{{- '}<end_function_call>' }}{% endfor %}"
    ),
}  # fmt: skip
"""By the name of the format in ``pumice.chat.FORMATS``."""


class _Generation(Extension):
    """Transformers' ``{% generation %}``, which a prompt shows as it is."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def jinja2_as_transformers(
    strftime_now: Callable[[str], str], kind: type[SandboxedEnvironment] = ImmutableSandboxedEnvironment
) -> SandboxedEnvironment:
    """Jinja2's environment as transformers makes it for chat templates (``_compile_jinja_template``)."""
    import json

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment
