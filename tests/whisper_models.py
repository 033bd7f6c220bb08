"""A tiny Whisper as transformers saves it; ``fixtures/whisper`` has its logits, and CTranslate2's file of it."""

import json
from pathlib import Path
from typing import Any

from checkpoints import N_TOKENS, write_checkpoint

FIXTURES = Path(__file__).parent / "fixtures" / "whisper"
END, START, ENGLISH, GERMAN, TRANSLATE, TRANSCRIBE, LM, PREVIOUS, SILENCE, NO_TIMES, FIRST_TIME = range(
    N_TOKENS, N_TOKENS + 11
)
SPECIAL = (
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>",
    "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip
N_VOCAB = FIRST_TIME + 1501
DECODED = [START, GERMAN, TRANSCRIBE, FIRST_TIME, *(7 * i + 3 for i in range(12)), FIRST_TIME + 90, END]
ROWS = 64  # of the sound, those whose attention is stored
STEP = 7  # of the logits of a token, those that are stored
CONFIG: dict[str, Any] = {
    "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "activation_function": "gelu",
    "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_layers": 3,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "num_mel_bins": 80, "max_source_positions": 1500,
    "max_target_positions": 64, "vocab_size": N_VOCAB, "bos_token_id": END, "eos_token_id": END, "pad_token_id": END,
    "decoder_start_token_id": START, "suppress_tokens": [1, 2, 7], "begin_suppress_tokens": [5, END],
    "scale_embedding": False,
}  # fmt: skip
GENERATION = {
    "alignment_heads": [[1, 0], [2, 1]],
    "suppress_tokens": CONFIG["suppress_tokens"],
    "begin_suppress_tokens": CONFIG["begin_suppress_tokens"],
}


def write_folder(folder: Path) -> Path:
    """Write the model's folder."""
    shapes = json.loads((FIXTURES / "shapes.json").read_text())
    write_checkpoint(folder, CONFIG, shapes, "bpe")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    write_tokens(folder)
    return folder


def write_tokens(folder: Path) -> None:
    """Add the special tokens to a folder's tokenizer."""
    values = json.loads((folder / "tokenizer.json").read_text())
    plain = values["added_tokens"][0] | {"special": True, "normalized": False}
    added = [plain | {"id": N_TOKENS + i, "content": text} for i, text in enumerate(SPECIAL)]
    (folder / "tokenizer.json").write_text(json.dumps(values | {"added_tokens": values["added_tokens"] + added}))
    (folder / "tokenizer_config.json").write_text("{}")
