"""The bundled model architectures, one file a family. ``decoder`` and ``blocks`` hold what they share."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Architecture, hookimpl
from pumice_architectures.command_r import CommandR
from pumice_architectures.deepseek2 import DeepSeek2
from pumice_architectures.exaone4 import Exaone4
from pumice_architectures.falcon import Falcon
from pumice_architectures.gemma import Gemma, Gemma2, Gemma3
from pumice_architectures.gpt2 import GPT2
from pumice_architectures.gpt_oss import GptOss
from pumice_architectures.gptneox import GPTNeoX
from pumice_architectures.granite import Granite
from pumice_architectures.llama import Llama, Mistral3
from pumice_architectures.mamba import Mamba
from pumice_architectures.olmo2 import Olmo2
from pumice_architectures.phi import Phi2, Phi3
from pumice_architectures.qwen import Qwen2, Qwen3, Qwen3MoE
from pumice_architectures.smollm3 import SmolLM3
from pumice_architectures.stablelm import StableLM
from pumice_architectures.starcoder2 import StarCoder2

ARCHITECTURES: dict[str, type[Architecture]] = {
    "command-r": CommandR,
    "deepseek2": DeepSeek2,
    "exaone4": Exaone4,
    "falcon": Falcon,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3": Gemma3,
    "gpt-oss": GptOss,
    "gpt2": GPT2,
    "gptneox": GPTNeoX,
    "granite": Granite,
    "granitemoe": Granite,
    "llama": Llama,
    "mamba": Mamba,
    "mistral3": Mistral3,
    "olmo2": Olmo2,
    "phi2": Phi2,
    "phi3": Phi3,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "qwen3moe": Qwen3MoE,
    "smollm3": SmolLM3,
    "stablelm": StableLM,
    "starcoder2": StarCoder2,
}


@hookimpl
def pumice_register_architectures(register: Callable[[str, type[Architecture]], None]) -> None:
    for key, architecture in ARCHITECTURES.items():
        register(key, architecture)
