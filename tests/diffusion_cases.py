"""Ways to fill masks, which llama.cpp and Pumice are to fill with the same tokens."""

from dataclasses import dataclass, replace

from tiny_models import TinyModel
from tiny_zoo import ZOO

PROMPT = [3, 9, 27, 17, 5, 1, 8, 30]
N_NEW = 16


@dataclass(frozen=True)
class Filling:
    model: str
    steps: int
    block_length: int | None = None
    cfg_scale: float = 0.0
    shifted: bool = True
    mask: int = 31


CASES = {
    "dream": Filling("dream", 16),
    "dream-few-steps": Filling("dream", 5),
    "dream-many-steps": Filling("dream", 40),
    "dream-guided": Filling("dream", 16, cfg_scale=1.5),
    "llada": Filling("llada", 16, shifted=False),
    "llada-blocks": Filling("llada", 12, block_length=4, shifted=False),
    "llada-blocks-guided": Filling("llada", 16, block_length=8, cfg_scale=0.5, shifted=False),
    "llada-moe": Filling("llada-moe", 16, block_length=8, shifted=False),
}


def fillable(case: Filling) -> TinyModel:
    """The tiny model, with a mask token."""
    model = ZOO[case.model]
    keys = {"/tokenizer.ggml.mask_token_id": case.mask, "/diffusion.shift_logits": case.shifted}
    return replace(model, metadata=model.metadata | keys)
