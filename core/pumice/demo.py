"""The model that comes with Pumice; how it was made is in tools/demo_model of the repository."""

from pathlib import Path


def demo_model_path() -> Path:
    """``pumice-demo``, a llama model of 5 million parameters in Q8_0 that tells children's stories."""
    return Path(__file__).parent / "models" / "pumice-demo.gguf"
