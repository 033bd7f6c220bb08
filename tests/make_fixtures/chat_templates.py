"""Make tests/fixtures/chat_templates.json: what llama.cpp's built-in chat templates make of some chats.

    python tests/make_fixtures/chat_templates.py path/to/libllama.so

For each template that both have, and each chat of CHATS, the prompt. The template "zephyr" writes the spelling of the
model's end token, for which llama.cpp has ``<|endoftext|>``; the others write ``</s>``.
"""

import ctypes
import json
import sys
from pathlib import Path

from pumice.chat import BUILTIN

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "chat_templates.json"
THEIR_NAMES = {"llama2": "llama2-sys", "seed-oss": "seed_oss"}
CHATS = [
    [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "Bye")],
    [("user", " spaces \n")],
    [("user", "One\n"), ("assistant", " two "), ("user", "three")],
]


class Message(ctypes.Structure):
    _fields_ = [("role", ctypes.c_char_p), ("content", ctypes.c_char_p)]


def main(library: str) -> None:
    apply = ctypes.CDLL(library).llama_chat_apply_template
    apply.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_char_p, ctypes.c_int32]

    def render(name: str, chat: list[tuple[str, str]]) -> str | None:
        messages = (Message * len(chat))(*(Message(role.encode(), text.encode()) for role, text in chat))
        buffer = ctypes.create_string_buffer(1 << 16)
        size = apply(name.encode(), messages, len(chat), True, buffer, len(buffer))
        return buffer.raw[:size].decode() if size >= 0 else None

    rendered = {name: [render(THEIR_NAMES.get(name, name), chat) for chat in CHATS] for name in BUILTIN}
    known = {name: texts for name, texts in rendered.items() if None not in texts}
    OUT.write_text(json.dumps({"chats": CHATS, "rendered": known}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
