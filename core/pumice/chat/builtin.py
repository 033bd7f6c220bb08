"""Built-in chat templates, by name, for files that have none. They know neither tools nor reasoning.

Nearly every format puts marks around the text of each role, so a format is a row of a table from which a template is
generated. The names are llama.cpp's; each format is the one that the model's authors published.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

Around = tuple[str, str]

_ROLES = "system user assistant"


@dataclass(frozen=True)
class Turns:
    """The marks around each role's text. ``<eos>`` in a mark stands for the model's end token.

    Attributes:
        system, user, assistant: text before and after a message of the role.
        answer: text that begins the assistant's answer.
        begin: text that begins the prompt.
        system_in_user: the system message and the next user message share a turn, which begins with ``system[0]``.
        strip: roles whose messages lose outer white space.
    """

    system: Around
    user: Around
    assistant: Around
    answer: str
    begin: str = ""
    system_in_user: bool = False
    strip: str = ""

    @property
    def end(self) -> str:
        """The mark that ends an answer; empty if that is the model's end token, or white space."""
        mark = self.assistant[1].strip()
        return "" if "<eos>" in mark else mark

    def template(self) -> str:
        """Return the format as a Jinja template."""
        before_user = _text(self.user[0])
        if self.system_in_user:
            first = "loop.first or loop.previtem['role'] != 'system'"
            before_user = f"{{% if {first} %}}{before_user}{{% endif %}}"
        return (
            f"{_text(self.begin)}{{% for message in messages %}}"
            f"{{% if message['role'] == 'system' %}}"
            f"{_text(self.system[0])}{self._content('system')}{_text(self.system[1])}"
            f"{{% elif message['role'] == 'assistant' %}}"
            f"{_text(self.assistant[0])}{self._content('assistant')}{_text(self.assistant[1])}"
            f"{{% else %}}{before_user}{self._content('user')}{_text(self.user[1])}{{% endif %}}"
            f"{{% endfor %}}{{% if add_generation_prompt %}}{_text(self.answer)}{{% endif %}}"
        )

    def _content(self, role: str) -> str:
        return "{{ message['content'] | trim }}" if role in self.strip else "{{ message['content'] }}"


def _text(text: str) -> str:
    """Return a Jinja expression that writes ``text``."""
    parts = [json.dumps(part, ensure_ascii=False) for part in text.split("<eos>")]
    return f"{{{{ {' ~ eos_token ~ '.join(parts)} }}}}" if text else ""


def _named(
    before: str, after: str, *, roles: str = _ROLES, answer: str | None = None, begin: str = "", strip: str = ""
) -> Turns:
    """A format in which ``%`` in the mark is the role's name, or the one of ``roles`` in its place."""
    system, user, assistant = ((before.replace("%", role), after) for role in roles.split())
    return Turns(system, user, assistant, assistant[0] if answer is None else answer, begin, strip=strip)


def _mistral(open: str, close: str, answer: str, system: Around | None = None, strip: str = "") -> Turns:
    return Turns(
        system=system or (open, "\n\n"),
        user=(open, close),
        assistant=(answer, "<eos>"),
        answer="",
        system_in_user=system is None,
        strip=strip,
    )


_COHERE = "<|START_OF_TURN_TOKEN|><|%_TOKEN|>"

TURNS: dict[str, Turns] = {
    "bailing": _named("<role>%</role>", "", roles="SYSTEM HUMAN ASSISTANT"),
    "chatglm3": _named("<|%|>\n ", "", begin="[gMASK]sop", answer="<|assistant|>"),
    "chatglm4": _named("<|%|>\n", "", begin="[gMASK]<sop>"),
    "chatml": _named("<|im_start|>%\n", "<|im_end|>\n"),
    "command-r": _named(_COHERE, "<|END_OF_TURN_TOKEN|>", roles="SYSTEM USER CHATBOT", strip=_ROLES),
    "deepseek": Turns(("", ""), ("### Instruction:\n", "\n"), ("### Response:\n", "\n<|EOT|>\n"), "### Response:\n"),
    "deepseek2": Turns(("", "\n\n"), ("User: ", "\n\n"), ("Assistant: ", "<｜end▁of▁sentence｜>"), "Assistant:"),
    "deepseek3": Turns(
        ("", "\n\n"), ("<｜User｜>", ""), ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), "<｜Assistant｜>"
    ),
    "exaone-moe": _named("<|%|>\n", "<|endofturn|>\n", strip=_ROLES),
    "exaone3": Turns(
        ("[|system|]", "[|endofturn|]\n"), ("[|user|]", "\n"), ("[|assistant|]", "[|endofturn|]\n"), "[|assistant|]",
        strip=_ROLES,
    ),
    "falcon3": _named("<|%|>\n", "\n"),
    "gemma": Turns(
        ("<start_of_turn>user\n", "\n\n"),
        ("<start_of_turn>user\n", "<end_of_turn>\n"),
        ("<start_of_turn>model\n", "<end_of_turn>\n"),
        "<start_of_turn>model\n",
        system_in_user=True,
        strip=_ROLES,
    ),
    "glmedge": _named("<|%|>\n", "", answer="<|assistant|>"),
    "gpt-oss": Turns(
        ("<|start|>system<|message|>", "<|end|>"),
        ("<|start|>user<|message|>", "<|end|>"),
        ("<|start|>assistant<|message|>", "<|return|>"),
        "<|start|>assistant",
    ),
    "granite": _named("<|start_of_role|>%<|end_of_role|>", "<|end_of_text|>\n"),
    "grok-2": Turns(
        ("System: ", "<|separator|>\n\n"), ("Human: ", "<|separator|>\n\n"), ("Assistant: ", "<|separator|>\n\n"),
        "Assistant:", strip="system user",
    ),
    "kimi-k2": Turns(
        ("<|im_system|>system<|im_middle|>", "<|im_end|>"),
        ("<|im_user|>user<|im_middle|>", "<|im_end|>"),
        ("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
        "<|im_assistant|>assistant<|im_middle|>",
    ),
    "llama2": Turns(
        ("[INST] <<SYS>>\n", "\n<</SYS>>\n\n"), ("[INST] ", " [/INST]"), ("", "<eos>"), "", system_in_user=True
    ),
    "llama3": _named("<|start_header_id|>%<|end_header_id|>\n\n", "<|eot_id|>", strip=_ROLES),
    "llama4": _named("<|header_start|>%<|header_end|>\n\n", "<|eot|>", strip=_ROLES),
    "megrez": _named("<|role_start|>%<|role_end|>", "<|turn_end|>"),
    "minicpm": Turns(("", ""), ("<用户>", "<AI>"), ("", ""), "", strip=_ROLES),
    "mistral-v1": _mistral(" [INST] ", " [/INST]", " "),
    "mistral-v3": _mistral("[INST] ", "[/INST]", " ", strip="assistant"),
    "mistral-v3-tekken": _mistral("[INST]", "[/INST]", ""),
    "mistral-v7": _mistral("[INST] ", "[/INST]", " ", ("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]")),
    "mistral-v7-tekken": _mistral("[INST]", "[/INST]", "", ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")),
    "openchat": Turns(
        ("", "<|end_of_turn|>"),
        ("GPT4 Correct User: ", "<|end_of_turn|>"),
        ("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
        "GPT4 Correct Assistant:",
    ),
    "orion": Turns(
        ("Human: ", "\n\n"), ("Human: ", "\n\nAssistant: <eos>"), ("", "<eos>"), "", system_in_user=True
    ),
    "phi3": _named("<|%|>\n", "<|end|>\n"),
    "phi4": _named("<|im_start|>%<|im_sep|>", "<|im_end|>"),
    "plain": Turns(("", "\n\n"), ("", ""), ("", "\n\n"), ""),
    "rwkv-world": Turns(
        ("System: ", "\n\n"), ("User: ", "\n\n"), ("Assistant: ", "\n\n"), "Assistant:", strip=_ROLES
    ),
    "seed-oss": _named("<seed:bos>%\n", "<seed:eos>", strip="assistant"),
    "smolvlm": Turns(
        ("", "\n\n"), ("User: ", "<end_of_utterance>\n"), ("Assistant: ", "<end_of_utterance>\n"), "Assistant:",
        begin="<|im_start|>",
    ),
    "solar-open": _named("<|begin|>%<|content|>", "<|end|>", answer="<|begin|>assistant"),
    "vicuna": Turns(("", "\n\n"), ("USER: ", "\n"), ("ASSISTANT: ", "<eos>\n"), "ASSISTANT:"),
    "vicuna-orca": Turns(("SYSTEM: ", "\n"), ("USER: ", "\n"), ("ASSISTANT: ", "<eos>\n"), "ASSISTANT:"),
    "zephyr": _named("<|%|>\n", "<eos>\n"),
}  # fmt: skip

BUILTIN: dict[str, str] = {name: turns.template() for name, turns in TURNS.items()}
"""Built-in templates by name. "plain", which joins the messages' texts, is for models that were not trained to chat."""

ENDS: dict[str, str] = {BUILTIN[name]: turns.end for name, turns in TURNS.items() if turns.end}
"""The mark that ends an answer, by the source of the built-in template."""
