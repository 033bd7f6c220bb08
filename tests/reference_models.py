"""The models of ``../shared/archs`` whose logits llama.cpp computed, and the tokens it was given."""

SHARED_MODELS = [
    "command-r-dense",
    "deepseek2-moe",
    "exaone4-dense",
    "falcon-dense",
    "gemma-dense",
    "gemma2-dense",
    "gemma3-dense",
    "gpt-oss-moe",
    "gpt2-dense",
    "gptneox-dense",
    "granite-dense",
    "llama-dense",
    "llama-moe",
    "mamba-dense",
    "mistral3-dense",
    "olmo2-dense",
    "phi2-dense",
    "phi3-dense",
    "qwen2-dense",
    "qwen3-dense",
    "qwen3moe-moe",
    "smollm3-dense",
    "stablelm-dense",
    "starcoder2-dense",
]
SHARED_IDS = [(7 * i + 3) % 128 for i in range(24)]
