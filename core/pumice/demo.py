"""The models that come with Pumice; tools/demo_model and tools/demo_vision of the repository make them."""

from pathlib import Path

_MODELS = Path(__file__).parent / "models"


def demo_model_path(*, vision: bool = False) -> Path:
    """Return the file of a model that comes with Pumice.

    ``pumice-demo``, a llama model of 5 million parameters in Q8_0, tells children's stories. With ``vision``:
    ``pumice-demo-vision``, which names the coloured shapes in a picture; its projector is beside it.
    """
    return _MODELS / "vision" / "pumice-demo-vision.gguf" if vision else _MODELS / "pumice-demo.gguf"


DEMOS = {path.stem: path for path in (demo_model_path(), demo_model_path(vision=True))}
"""The models by name."""
