"""The bundled model architectures, one file a family. ``decoder`` and ``blocks`` hold what they share."""

from collections.abc import Callable

from pumice.plugin import hookimpl

ARCHITECTURES = {
    "command-r": "pumice_architectures.command_r:CommandR",
    "deepseek2": "pumice_architectures.deepseek2:DeepSeek2",
    "exaone4": "pumice_architectures.exaone4:Exaone4",
    "falcon": "pumice_architectures.falcon:Falcon",
    "gemma": "pumice_architectures.gemma:Gemma",
    "gemma2": "pumice_architectures.gemma:Gemma2",
    "gemma3": "pumice_architectures.gemma:Gemma3",
    "gpt-oss": "pumice_architectures.gpt_oss:GptOss",
    "gpt2": "pumice_architectures.gpt2:GPT2",
    "gptneox": "pumice_architectures.gptneox:GPTNeoX",
    "granite": "pumice_architectures.granite:Granite",
    "granitemoe": "pumice_architectures.granite:Granite",
    "llama": "pumice_architectures.llama:Llama",
    "mamba": "pumice_architectures.mamba:Mamba",
    "mistral3": "pumice_architectures.llama:Mistral3",
    "olmo2": "pumice_architectures.olmo2:Olmo2",
    "phi2": "pumice_architectures.phi:Phi2",
    "phi3": "pumice_architectures.phi:Phi3",
    "qwen2": "pumice_architectures.qwen:Qwen2",
    "qwen3": "pumice_architectures.qwen:Qwen3",
    "qwen3moe": "pumice_architectures.qwen:Qwen3MoE",
    "smollm3": "pumice_architectures.smollm3:SmolLM3",
    "stablelm": "pumice_architectures.stablelm:StableLM",
    "starcoder2": "pumice_architectures.starcoder2:StarCoder2",
}
"""The value of ``general.architecture`` -> its class, imported when a file needs it."""


@hookimpl
def pumice_register_architectures(register: Callable[[str, str], None]) -> None:
    for key, architecture in ARCHITECTURES.items():
        register(key, architecture)
