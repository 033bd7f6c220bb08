"""Make tests/fixtures/chat_answers.json: answers as published templates write them, and what llama.cpp reads in them.

    python tests/make_fixtures/chat_answers.py    (needs a C++ compiler, llama.cpp's sources and its built libraries,
                                                   named by LLAMA_CPP_SOURCE and LLAMA_CPP_LIB_PATH)

Each template of llama.cpp's ``models/templates`` renders the messages of MESSAGES; what it writes for the assistant is
such an answer, unless llama.cpp's own parser does not find in it what was rendered. WRITTEN are answers beside these.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pumice.chat import FORMATS
from pumice.chat.formats import detect

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "chat_answers.json"
PARAMETERS = {
    "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "note": {
        "text": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "object", "properties": {"x": {"type": "number"}, "home": {"type": "boolean"}}},
    },
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": {"type": "object", "properties": properties}},
    }
    for name, properties in PARAMETERS.items()
]
ARGUMENTS = {
    "get_weather": {"city": 'Paris "x"', "days": 3},
    "note": {"text": "12", "tags": ["a", "b"], "at": {"x": 1.5, "home": True}},
}
CONTENT, REASONING = "It is <b>18</b> degrees.", "Well,\nlet me see."
USER = {"role": "user", "content": "Hi"}


def _message(content: str = "", reasoning: str = "", *names: str) -> dict[str, Any]:
    calls = [
        {
            "id": f"12345678{i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(ARGUMENTS[name], ensure_ascii=False)},
        }
        for i, name in enumerate(names)
    ]
    return {
        "role": "assistant",
        "content": content,
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


MESSAGES = [
    _message(CONTENT), _message(CONTENT, REASONING), _message("", "", "get_weather"),
    _message(CONTENT, "", "get_weather"), _message("", "", "get_weather", "note"), _message("", REASONING, "note"),
    _message(CONTENT, REASONING, "note", "get_weather"),
]  # fmt: skip
_JSON = '{"city": "Paris", "days": 3}'
_CALL = '{"name": "get_weather", "arguments": ' + _JSON + "}"
_ACTION = '[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": ' + _JSON + "}\n]"
_DEEPSEEK = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" + _JSON + "\n```<｜tool▁call▁end｜>"
_HY3 = (
    "<tool_call:opensource>get_weather<tool_sep:opensource>\n"
    "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n"
    "</tool_call:opensource>\n"
)
_CODER = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
WRITTEN = {
    "ByteDance-Seed-OSS": ["<seed:think>Well</seed:think>Hello"],
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": [
        f"<|START_THINKING|>Well<|END_THINKING|><|START_ACTION|>{_ACTION}<|END_ACTION|>",
        "<|START_THINKING|>Well<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>",
    ],
    "HuggingFaceTB-SmolLM3-3B": [f"Well</think>\n<tool_call>\n{_CALL}\n</tool_call>"],
    "LFM2-8B-A1B": ['<|tool_call_start|>[get_weather(city="Paris", days=3)]<|tool_call_end|>'],
    "NVIDIA-Nemotron-Nano-v2": ["Well\n</think>\n\nHello", f"Well\n</think>\n\n<TOOLCALL>[{_CALL}]</TOOLCALL>"],
    "Qwen-QwQ-32B": ["Well\n</think>\n\nHello", f"Well\n</think>\n<tool_call>\n{_CALL}\n</tool_call>"],
    "Qwen3.5-4B": [f"Well\n{_CODER}", f"Well\n</think>\n\n{_CODER}"],
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ["Well\n</think>\n\nHello"],
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": [
        "Well\n</think>\n\nHello",
        f"Well\n</think>\n\n<｜tool▁calls▁begin｜>{_DEEPSEEK}<｜tool▁calls▁end｜>",
    ],
    "meetkai-functionary-medium-v3.1": [f"<function=get_weather>{_JSON}</function>"],
    "moonshotai-Kimi-K2": [
        f"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{_JSON}<|tool_call_end|>"
    ],
    "openbmb-MiniCPM5-1B": [
        'Well\n</think>\n\n<function name="get_weather"><param name="city"><![CDATA[<b> </param>]]></param></function>'
    ],
    "tencent-Hy3": [
        f"<tool_calls:opensource>\n{_HY3}</tool_calls:opensource>",
        f"Well</think:opensource>Hello\n<tool_calls:opensource>\n{_HY3}</tool_calls:opensource>",
    ],
}
ENDS = ("<|END_OF_TURN_TOKEN|>", "<|end_of_msg|>", "<|tool_response>")  # of a turn, as tokens that are no text

DRIVER = r"""
#include "chat.h"
#include "json.h"
#include <fstream>
#include <iostream>
#include <sstream>

int main(int, char ** argv) {
    std::ifstream file(argv[1]);
    std::stringstream source;
    source << file.rdbuf();
    auto templates = common_chat_templates_init(nullptr, source.str(), "<s>", "</s>");
    std::string line;
    while (std::getline(std::cin, line)) {
        common_json told = common_json::object();
        try {
            common_json asked = common_json::parse(line);
            common_chat_templates_inputs inputs;
            inputs.messages = common_chat_msgs_parse_oaicompat(asked["messages"]);
            inputs.tools = common_chat_tools_parse_oaicompat(asked["tools"]);
            inputs.parallel_tool_calls = true;
            inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
            inputs.add_generation_prompt = asked["opens"].get<bool>();
            auto params = common_chat_templates_apply(templates.get(), inputs);
            told["prompt"] = params.prompt;
            told["opening"] = params.generation_prompt;
            if (asked.contains("text")) {
                common_peg_arena arena;
                arena.load(params.parser);
                common_chat_parser_params how(params);
                auto message = common_chat_peg_parse(arena, asked["text"].get<std::string>(), false, how);
                told["content"] = message.content;
                told["reasoning"] = message.reasoning_content;
                common_json calls = common_json::array();
                for (auto & call : message.tool_calls) {
                    common_json each = common_json::array();
                    each.push_back(call.name);
                    each.push_back(call.arguments);
                    calls.push_back(each);
                }
                told["calls"] = calls;
            }
        } catch (std::exception & error) {
            told["error"] = error.what();
        }
        std::cout << told.dump() << std::endl;
    }
}
"""


class Driver:
    """llama.cpp with one template."""

    def __init__(self, program: Path, template: Path) -> None:
        self._process = subprocess.Popen(
            [program, template], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, messages: list[dict[str, Any]], tools: list[Any], **options: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"messages": messages, "tools": tools, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        told: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        return told

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    source, libraries = Path(os.environ["LLAMA_CPP_SOURCE"]), os.environ["LLAMA_CPP_LIB_PATH"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "driver"
        program.with_suffix(".cpp").write_text(DRIVER)
        includes = [f"-I{source / part}" for part in ("include", "ggml/include", "common", "vendor")]
        linked = [f"-L{libraries}", "-lllama-common", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"]
        command = ["g++", "-O0", "-std=c++17", *includes, str(program.with_suffix(".cpp")), *linked, "-o", str(program)]
        subprocess.run(command, check=True)
        for template in sorted((source / "models" / "templates").glob("*.jinja")):
            driver = Driver(program, template)
            answers = [answer for message in MESSAGES if (answer := _answer(driver, message))]
            written = [_read(driver, text, TOOLS) for text in WRITTEN.get(template.stem, ())]
            driver.close()
            answers += [answer for answer in written if "error" not in answer]
            format = detect(template.read_text(), FORMATS.values())
            name = next((name for name, each in FORMATS.items() if each is format), None)
            if name:
                found[template.stem] = {"format": name, "answers": answers}
            unread = [answer for answer in written if "error" in answer]
            print(template.stem, name, len(answers), unread or "", file=sys.stderr)
    OUT.write_text(json.dumps({"tools": TOOLS, "templates": found}, ensure_ascii=False, indent=1) + "\n")


def _answer(driver: Driver, message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the text of a message by its template, and llama.cpp's parse of it; None unless that is the message."""
    tools = TOOLS if message.get("tool_calls") else []
    asked = driver.ask([USER], tools, opens=True)
    whole = driver.ask([USER, message], tools, opens=False).get("prompt", "")
    plain = driver.ask([USER, _message(CONTENT)], tools, opens=False).get("prompt", "")
    prompt = asked.get("prompt", "")
    if not prompt or not whole.startswith(prompt):
        return None
    text = whole[len(prompt) :].removesuffix(plain.rpartition(CONTENT)[2])
    for end in ENDS:
        text = text.removesuffix(end)
    functions = [call["function"] for call in message.get("tool_calls", ())]
    answer = {
        "opening": asked["opening"],
        "text": text,
        "content": message["content"],
        "reasoning": message.get("reasoning_content", ""),
        "calls": [[function["name"], json.loads(function["arguments"])] for function in functions],
    }
    return answer if _read(driver, text, tools) == answer else None


def _read(driver: Driver, text: str, tools: list[Any]) -> dict[str, Any]:
    read = driver.ask([USER], tools, opens=True, text=text)
    if "error" in read:
        return {"text": text, **read}
    calls = [[name, json.loads(arguments)] for name, arguments in read["calls"]]
    texts = {name: read[name].strip() for name in ("content", "reasoning")}
    return {"opening": read["opening"], "text": text, **texts, "calls": calls}


if __name__ == "__main__":
    main()
