"""The chat formats of model families, detected by the marks in their published templates."""

from __future__ import annotations

from pumice.chat.calls import Keys
from pumice.chat.formats import ChatFormat

_HERMES = "<tool_call>{json}</tool_call>"
_COHERE = Keys("tool_name", "parameters", "tool_call_id")
_HARMONY_CALLS = [
    f"{head}{constraint}<|message|>{{arguments}}"
    for channel in ("commentary", "analysis")
    for head in (f"<|channel|>{channel} to=functions.{{name}}", f"to=functions.{{name}}<|channel|>{channel}")
    for constraint in (" <|constrain|>json", " json", "")
]

FORMATS: dict[str, ChatFormat] = {
    "harmony": ChatFormat(
        marks=("<|channel|>", "<|message|>"),
        reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
        calls=tuple(_HARMONY_CALLS),
        heads=("<|start|>assistant to=", "<|channel|>commentary to=", "<|channel|>analysis to="),
        silent=(
            "<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>", "<|end|>",
            "<|call|>", "<|return|>", "<|channel|>final <|constrain|>json<|message|>",
            "<|channel|>commentary to=assistant",
        ),
        after_reasoning="<|start|>assistant",
    ),
    "muse": ChatFormat(
        marks=("<atem:function_calls>",),
        reasoning=(" to=self<|message|>", "<|eom|>"),
        calls=('<atem:invoke name="{name}">{params}</atem:invoke>',),
        param='<atem:parameter name="{key}">{value}</atem:parameter>',
        section=("<atem:function_calls>", "</atem:function_calls>"),
        silent=("<|start|>assistant", "to=user<|message|>", "to={name}<|message|>", "<|message|>", "<|eom|>"),
        after_reasoning="<|start|>assistant",
    ),
    "kimi-k3": ChatFormat(
        marks=("<|open|>", "<|sep|>"),
        reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        calls=('<|open|>call tool="{name}" index="{id}"<|sep|>{params}<|close|>call<|sep|>',),
        param='<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>',
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        silent=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    ),
    "kimi-k2": ChatFormat(
        marks=("<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
        calls=("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",),
        variants=("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}",),
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "deepseek-dsml": ChatFormat(
        marks=("｜DSML｜", "function_calls"),
        calls=('<｜DSML｜invoke name="{name}">{params}</｜DSML｜invoke>',),
        param='<｜DSML｜parameter name="{key}" string="{type}">{value}</｜DSML｜parameter>',
        section=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    ),
    "deepseek-v4": ChatFormat(
        marks=("｜DSML｜",),
        calls=('<｜DSML｜invoke name="{name}">{params}</｜DSML｜invoke>',),
        param='<｜DSML｜parameter name="{key}" string="{type}">{value}</｜DSML｜parameter>',
        section=("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    ),
    "deepseek": ChatFormat(
        marks=("<｜tool▁call▁begin｜>",),
        calls=(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name} ```json {arguments} ```<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        ),
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "mistral-think": ChatFormat(
        marks=("[TOOL_CALLS]", "[THINK]"),
        reasoning=("[THINK]", "[/THINK]"),
        calls=(
            "[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}", "[TOOL_CALLS]{name}[ARGS]{arguments}",
            "[TOOL_CALLS]{json}",
        ),
    ),
    "mistral": ChatFormat(
        marks=("[TOOL_CALLS]",),
        calls=(
            "[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}", "[TOOL_CALLS]{name}[ARGS]{arguments}",
            "[TOOL_CALLS]{json}",
        ),
    ),
    "minimax-m3": ChatFormat(
        marks=("]<]minimax[>[",),
        reasoning=("<mm:think>", "</mm:think>"),
        calls=(']<]minimax[>[<invoke name="{name}">{params} ]<]minimax[>[</invoke>',),
        param="]<]minimax[>[<{key}>{value}]<]minimax[>[</{key}>",
        section=("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"),
    ),
    "minimax-m2": ChatFormat(
        marks=("<minimax:tool_call>",),
        calls=('<invoke name="{name}">{params}</invoke>',),
        param='<parameter name="{key}">{value}</parameter>',
        section=("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "seed-oss": ChatFormat(
        marks=("<seed:tool_call>",),
        reasoning=("<seed:think>", "</seed:think>"),
        calls=("<seed:tool_call><function={name}>{params}</function></seed:tool_call>",),
        param="<parameter={key}>{value}</parameter>",
    ),
    "hunyuan": ChatFormat(
        marks=("<tool_sep",),
        reasoning=("<think:opensource>", "</think:opensource>"),
        calls=("<tool_call:opensource>{name}<tool_sep:opensource>{params}</tool_call:opensource>",),
        param="<arg_key:opensource>{key}</arg_key:opensource><arg_value:opensource>{value}</arg_value:opensource>",
        section=("<tool_calls:opensource>", "</tool_calls:opensource>"),
    ),
    "longcat": ChatFormat(
        marks=("<longcat_tool_call>",),
        reasoning=("<longcat_think>", "</longcat_think>"),
        calls=(
            "<longcat_tool_call>{json}</longcat_tool_call>",
            "<longcat_tool_call>{name}{params}</longcat_tool_call>",
        ),
        param="<longcat_arg_key>{key}</longcat_arg_key><longcat_arg_value>{value}</longcat_arg_value>",
    ),
    "glm": ChatFormat(
        marks=("<arg_key>", "<arg_value>"),
        calls=("<tool_call>{name}{params}</tool_call>",),
        param="<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
        silent=("</assistant>",),
    ),
    "qwen3-coder": ChatFormat(
        marks=("<tool_call>", "<function=", "<parameter="),
        calls=("<tool_call><function={name}>{params}</function></tool_call>", "<function={name}>{params}</function>"),
        param="<parameter={key}>{value}</parameter>",
    ),
    "minicpm": ChatFormat(
        marks=('<function name="', '<param name="'),
        calls=('<function name="{name}">{params}</function>',),
        param='<param name="{key}">{xml}</param>',
    ),
    "gemma4": ChatFormat(
        marks=("<|tool_call>",),
        reasoning=("<|channel>thought", "<channel|>"),
        calls=("<|tool_call>call:{name}{braces}<tool_call|>",),
        quote='<|"|>',
        silent=("<|channel>", "<channel|>"),
    ),
    "functiongemma": ChatFormat(
        marks=("<start_function_call>",),
        calls=("<start_function_call>call:{name}{braces}<end_function_call>",),
        quote="<escape>",
    ),
    "apertus": ChatFormat(
        marks=("<|tools_prefix|>",),
        reasoning=("<|inner_prefix|>", "<|inner_suffix|>"),
        calls=("<|tools_prefix|>{json}<|tools_suffix|>",),
        keys=Keys(name="", arguments=""),
    ),
    "command-r7b": ChatFormat(
        marks=("<|CHATBOT_TOKEN|>", "<|START_ACTION|>"),
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        calls=("<|START_ACTION|>{json}<|END_ACTION|>",),
        keys=_COHERE,
        silent=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        after_reasoning="",
    ),
    "command-r": ChatFormat(
        marks=("<|CHATBOT_TOKEN|>", "Action:"), calls=("Action: ```json {json} ```",), keys=_COHERE
    ),
    "solar": ChatFormat(
        marks=("<|tool_call:begin|>",),
        reasoning=("<|think|>", "<|end|>"),
        calls=(
            "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
        ),
        section=("<|tool_calls|>", ""),
        silent=("<|begin|>assistant", "<|content|>"),
        after_reasoning="<|begin|>assistant",
    ),
    "gigachat": ChatFormat(
        marks=("<|role_sep|>",),
        calls=("<|function_call|>{json}", "function call<|role_sep|>{json}"),
        silent=("<|message_sep|>",),
    ),
    "lfm2": ChatFormat(
        marks=("<|tool_list_start|>",), calls=("<|tool_call_start|>{python}<|tool_call_end|>",)
    ),
    "lfm2.5": ChatFormat(
        marks=("<|tool_call_start|>",), calls=("<|tool_call_start|>{python}<|tool_call_end|>",)
    ),
    "nemotron": ChatFormat(marks=("<TOOLCALL>",), calls=("<TOOLCALL>{json}</TOOLCALL>",)),
    "firefunction": ChatFormat(marks=("functools[",), calls=("functools{json}",)),
    "functionary-v3.2": ChatFormat(marks=(">>>all",), calls=(">>>{name}\n{arguments}",), silent=(">>>all\n",)),
    "functionary-v3.1": ChatFormat(
        marks=("<|start_header_id|>", "<function=", "</function>"),
        calls=("<function={name}>{arguments}</function>", "<|python_tag|>{json}"),
    ),
    "llama4": ChatFormat(
        marks=("<|header_start|>",),
        calls=("<|python_start|>{python}<|python_end|>", "{python}", "{json}"),
        keys=Keys(arguments="parameters"),
    ),
    "llama3": ChatFormat(
        marks=("<|start_header_id|>", '"parameters"'),
        calls=("<|python_tag|>{json}", "<function={name}>{arguments}</function>", "{json}", "{python}"),
        keys=Keys(arguments="parameters"),
    ),
    "granite": ChatFormat(
        marks=("<|start_of_role|>",),
        calls=(_HERMES, "<tool_call>{json}", "<|tool_call|>{json}"),
        silent=("<response>", "</response>"),
    ),
    "phi4": ChatFormat(
        marks=("<|tool|>",), calls=("<|tool_call|>{json}<|/tool_call|>", "<|tool_call|>{json}", "functools{json}")
    ),
    "internlm": ChatFormat(
        marks=("<|plugin|>",),
        calls=("<|action_start|><|plugin|>{json}<|action_end|>",),
        keys=Keys(arguments="parameters"),
    ),
    "apriel": ChatFormat(
        marks=("[BEGIN FINAL RESPONSE]",),
        reasoning=("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
        calls=("{json}",),
        section=("<tool_calls>", "</tool_calls>"),
        silent=("[END FINAL RESPONSE]",),
    ),
    "tool-calls": ChatFormat(
        marks=("<tool_calls>",), calls=(_HERMES, "{json}"), section=("<tool_calls>", "</tool_calls>")
    ),
    "hermes": ChatFormat(marks=("<tool_call>",), calls=(_HERMES,)),
}  # fmt: skip
"""Chat formats by name."""


GENERIC = ChatFormat(calls=(_HERMES, "<|tool_call_start|>{python}<|tool_call_end|>", "[TOOL_CALLS]{json}"))
"""Fallback for unknown models: the most common formats."""
