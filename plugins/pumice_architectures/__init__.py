"""The bundled model architectures, one file per family. ``pumice.plugin.nn`` has their common parts."""

from collections.abc import Callable

from pumice.plugin import hookimpl
from pumice_architectures.conversions import CONVERSIONS, PROJECTORS
from pumice_architectures.hearing import SOUND_ENCODERS
from pumice_architectures.speaking import SPEECH_MODELS
from pumice_architectures.vision import ENCODERS

ARCHITECTURES = {
    "afmoe": "pumice_architectures.afmoe:AfMoE",
    "apertus": "pumice_architectures.apertus:Apertus",
    "arcee": "pumice_architectures.arcee:Arcee",
    "arctic": "pumice_architectures.arctic:Arctic",
    "arwkv7": "pumice_architectures.rwkv7:ARWKV7",
    "axk1": "pumice_architectures.deepseek2:AXK1",
    "axk2": "pumice_architectures.axk2:AXK2",
    "baichuan": "pumice_architectures.baichuan:Baichuan",
    "bailingmoe": "pumice_architectures.bailingmoe:BailingMoE",
    "bailingmoe2": "pumice_architectures.bailingmoe:BailingMoE2",
    "bailingmoe3": "pumice_architectures.bailingmoe3:BailingMoE3",
    "bert": "pumice_architectures.bert:Bert",
    "biogpt": "pumice_architectures.opt:BioGPT",
    "bitnet": "pumice_architectures.bitnet:BitNet",
    "bloom": "pumice_architectures.bloom:Bloom",
    "chameleon": "pumice_architectures.chameleon:Chameleon",
    "chatglm": "pumice_architectures.glm:ChatGLM",
    "codeshell": "pumice_architectures.codeshell:CodeShell",
    "cogvlm": "pumice_architectures.cogvlm:CogVLM",
    "cohere2": "pumice_architectures.command_r:Cohere2",
    "cohere2moe": "pumice_architectures.cohere2_moe:Cohere2MoE",
    "command-r": "pumice_architectures.command_r:CommandR",
    "cwm": "pumice_architectures.windowed:WindowedLlama",
    "dbrx": "pumice_architectures.dbrx:DBRX",
    "deci": "pumice_architectures.deci:Deci",
    "deepseek": "pumice_architectures.deepseek:DeepSeek",
    "deepseek2": "pumice_architectures.deepseek2:DeepSeek2",
    "deepseek2-ocr": "pumice_architectures.deepseek:DeepSeekOCR",
    "deepseek32": "pumice_architectures.sparse_latent:DeepSeek32",
    "deepseek4": "pumice_architectures.deepseek4:DeepSeek4",
    "dflash": "pumice_architectures.dflash:DFlash",
    "diffllama": "pumice_architectures.diffllama:DiffLlama",
    "dots1": "pumice_architectures.dots1:Dots1",
    "dots3note": "pumice_architectures.sparse_latent:Dots3Note",
    "dream": "pumice_architectures.diffusion:Dream",
    "eagle3": "pumice_architectures.eagle3:Eagle3",
    "ernie4_5": "pumice_architectures.ernie4_5:Ernie45",
    "ernie4_5-moe": "pumice_architectures.ernie4_5:Ernie45MoE",
    "eurobert": "pumice_architectures.modern_bert:EuroBert",
    "exaone": "pumice_architectures.qwen:Qwen2",
    "exaone-moe": "pumice_architectures.exaone_moe:ExaoneMoE",
    "exaone4": "pumice_architectures.exaone4:Exaone4",
    "falcon": "pumice_architectures.falcon:Falcon",
    "falcon-h1": "pumice_architectures.falcon_h1:FalconH1",
    "flexolmo": "pumice_architectures.olmo2:FlexOlmo",
    "flint": "pumice_architectures.kolibri:Flint",
    "gemma": "pumice_architectures.gemma:Gemma",
    "gemma-embedding": "pumice_architectures.gemma:GemmaEmbedding",
    "gemma2": "pumice_architectures.gemma:Gemma2",
    "gemma3": "pumice_architectures.gemma:Gemma3",
    "gemma3n": "pumice_architectures.gemma3n:Gemma3n",
    "gemma4": "pumice_architectures.gemma4:Gemma4",
    "gemma4-assistant": "pumice_architectures.gemma4:Gemma4Assistant",
    "glm-dsa": "pumice_architectures.sparse_latent:GLMDSA",
    "glm4": "pumice_architectures.glm:GLM4",
    "glm4moe": "pumice_architectures.glm4_moe:GLM4MoE",
    "glm5-next": "pumice_architectures.glm5_next:GLM5Next",
    "gpt-neo": "pumice_architectures.gpt_neo:GPTNeo",
    "gpt-oss": "pumice_architectures.gpt_oss:GptOss",
    "gpt2": "pumice_architectures.gpt2:GPT2",
    "gptj": "pumice_architectures.gptj:GPTJ",
    "gptneox": "pumice_architectures.gptneox:GPTNeoX",
    "granite": "pumice_architectures.granite:Granite",
    "granite_swa": "pumice_architectures.granite:GraniteSWA",
    "granitehybrid": "pumice_architectures.granite_hybrid:GraniteHybrid",
    "granitemoe": "pumice_architectures.granite:GraniteMoE",
    "graniteswitch": "pumice_architectures.graniteswitch:GraniteSwitch",
    "grok": "pumice_architectures.grok:Grok",
    "grovemoe": "pumice_architectures.grovemoe:GroveMoE",
    "hrm_text": "pumice_architectures.loops:HRMText",
    "hunyuan-dense": "pumice_architectures.hunyuan:HunyuanDense",
    "hunyuan-moe": "pumice_architectures.hunyuan_moe:HunyuanMoE",
    "hunyuan_vl": "pumice_architectures.hunyuan:HunyuanVL",
    "hy_v3": "pumice_architectures.hunyuan_moe:HunyuanV3",
    "hy_v4": "pumice_architectures.hunyuan_v4:HunyuanV4",
    "hyperclovax": "pumice_architectures.hyperclovax:HyperCLOVAX",
    "internlm2": "pumice_architectures.llama:PlainLlama",
    "jais": "pumice_architectures.jais:Jais",
    "jais2": "pumice_architectures.nemotron:Nemotron",
    "jamba": "pumice_architectures.jamba:Jamba",
    "jina-bert-v2": "pumice_architectures.bert:JinaBertV2",
    "jina-bert-v3": "pumice_architectures.bert:JinaBertV3",
    "kimi-k3": "pumice_architectures.kimi_k3:KimiK3",
    "kimi-linear": "pumice_architectures.kimi_linear:KimiLinear",
    "kolibri": "pumice_architectures.kolibri:Kolibri",
    "laguna": "pumice_architectures.laguna:Laguna",
    "lara-mini": "pumice_architectures.lara_mini:LaraMini",
    "lfm2": "pumice_architectures.lfm2:LFM2",
    "lfm2moe": "pumice_architectures.lfm2:LFM2MoE",
    "lfm3": "pumice_architectures.lfm2:LFM3",
    "llada": "pumice_architectures.diffusion:LLaDA",
    "llada-moe": "pumice_architectures.diffusion:LLaDAMoE",
    "llama": "pumice_architectures.llama:Llama",
    "llama-embed": "pumice_architectures.llama:LlamaEmbed",
    "llama4": "pumice_architectures.llama4:Llama4",
    "maincoder": "pumice_architectures.maincoder:Maincoder",
    "mamba": "pumice_architectures.mamba:Mamba",
    "mamba2": "pumice_architectures.mamba:Mamba2",
    "maple": "pumice_architectures.mellum:Maple",
    "mellum": "pumice_architectures.mellum:Mellum",
    "mimo2": "pumice_architectures.mimo2:MiMo2",
    "minicpm": "pumice_architectures.minicpm:MiniCPM",
    "minicpm3": "pumice_architectures.minicpm:MiniCPM3",
    "minimax-01": "pumice_architectures.minimax01:MiniMax01",
    "minimax-m2": "pumice_architectures.minimax:MiniMaxM2",
    "minimax-m3": "pumice_architectures.minimax:MiniMaxM3",
    "ministral": "pumice_architectures.windowed:WindowedLlama",
    "mistral3": "pumice_architectures.llama:Mistral3",
    "mistral4": "pumice_architectures.deepseek2:Mistral4",
    "modern-bert": "pumice_architectures.modern_bert:ModernBert",
    "modern-bert-decoder": "pumice_architectures.modern_bert:ModernBertDecoder",
    "mpt": "pumice_architectures.mpt:MPT",
    "muse-glimmer": "pumice_architectures.muse_glimmer:MuseGlimmer",
    "nanbeige": "pumice_architectures.loops:Nanbeige",
    "nanochat": "pumice_architectures.nanochat:NanoChat",
    "nemotron": "pumice_architectures.nemotron:Nemotron",
    "nemotron_h": "pumice_architectures.nemotron_h:NemotronH",
    "nemotron_h_moe": "pumice_architectures.nemotron_h:NemotronH",
    "neo-bert": "pumice_architectures.modern_bert:NeoBert",
    "nomic-bert": "pumice_architectures.bert:NomicBert",
    "nomic-bert-moe": "pumice_architectures.bert:NomicBertMoE",
    "olmo": "pumice_architectures.olmo:Olmo",
    "olmo2": "pumice_architectures.olmo2:Olmo2",
    "olmo-hybrid": "pumice_architectures.olmo_hybrid:OlmoHybrid",
    "olmoe": "pumice_architectures.olmoe:OlMoE",
    "openelm": "pumice_architectures.openelm:OpenELM",
    "opt": "pumice_architectures.opt:OPT",
    "orion": "pumice_architectures.orion:Orion",
    "paddleocr": "pumice_architectures.qwen_vl:PaddleOCR",
    "pangu-embedded": "pumice_architectures.qwen:PanguEmbedded",
    "persimmon": "pumice_architectures.persimmon:Persimmon",
    "phi2": "pumice_architectures.phi:Phi2",
    "phi3": "pumice_architectures.phi:Phi3",
    "phimoe": "pumice_architectures.phimoe:PhiMoE",
    "plamo": "pumice_architectures.plamo:Plamo",
    "plamo2": "pumice_architectures.plamo2:PLaMo2",
    "plamo3": "pumice_architectures.plamo:Plamo3",
    "plm": "pumice_architectures.minicpm:PLM",
    "pockettts": "pumice_architectures.starcoder2:PocketTTS",
    "qwen": "pumice_architectures.qwen:Qwen",
    "qwen2": "pumice_architectures.qwen:Qwen2",
    "qwen2moe": "pumice_architectures.qwen_moe:Qwen2MoE",
    "qwen2vl": "pumice_architectures.qwen_vl:Qwen2VL",
    "qwen3": "pumice_architectures.qwen:Qwen3",
    "qwen35": "pumice_architectures.qwen_next:Qwen35",
    "qwen35moe": "pumice_architectures.qwen_next:Qwen35MoE",
    "qwen3moe": "pumice_architectures.qwen_moe:Qwen3MoE",
    "qwen3next": "pumice_architectures.qwen_next:Qwen3Next",
    "qwen3tts": "pumice_architectures.qwen_vl:Qwen3TTS",
    "qwen3vl": "pumice_architectures.qwen_vl:Qwen3VL",
    "qwen3vlmoe": "pumice_architectures.qwen_vl:Qwen3VLMoE",
    "qwen4exp": "pumice_architectures.qwen4exp:Qwen4Exp",
    "refact": "pumice_architectures.refact:Refact",
    "rnd1": "pumice_architectures.diffusion:RND1",
    "rwkv6": "pumice_architectures.rwkv6:RWKV6",
    "rwkv6qwen2": "pumice_architectures.rwkv6:RWKV6Qwen2",
    "rwkv7": "pumice_architectures.rwkv7:RWKV7",
    "seed_oss": "pumice_architectures.seed_oss:SeedOss",
    "smallthinker": "pumice_architectures.smallthinker:SmallThinker",
    "smollm3": "pumice_architectures.smollm3:SmolLM3",
    "spark2_5": "pumice_architectures.spark2_5:Spark25",
    "stablelm": "pumice_architectures.stablelm:StableLM",
    "starcoder": "pumice_architectures.gpt2:GPT2",
    "starcoder2": "pumice_architectures.starcoder2:StarCoder2",
    "step35": "pumice_architectures.step35:Step35",
    "t5": "pumice_architectures.t5:T5",
    "t5encoder": "pumice_architectures.t5:T5Encoder",
    "talkie": "pumice_architectures.talkie:Talkie",
    "vaultgemma": "pumice_architectures.gemma:VaultGemma",
    "wavtokenizer-dec": "pumice_architectures.wavtokenizer:WavTokenizer",
    "whisper": "pumice_architectures.whisper:Whisper",
    "xverse": "pumice_architectures.llama:PlainLlama",
}
"""Class of each value of ``general.architecture``, imported when a file needs it."""


@hookimpl
def pumice_register_architectures(register: Callable[[str, str], None]) -> None:
    for key, architecture in ARCHITECTURES.items():
        register(key, architecture)


@hookimpl
def pumice_register_conversions(register: Callable[[str, str], None]) -> None:
    for name, conversion in CONVERSIONS.items():
        register(name, conversion)


@hookimpl
def pumice_register_projector_conversions(register: Callable[[str, str], None]) -> None:
    for name, conversion in PROJECTORS.items():
        register(name, conversion)


@hookimpl
def pumice_register_speech_models(register: Callable[[str, str], None]) -> None:
    for kind, model in SPEECH_MODELS.items():
        register(kind, model)


@hookimpl
def pumice_register_media_encoders(register: Callable[[str, str], None]) -> None:
    for kind, encoder in {**ENCODERS, **SOUND_ENCODERS}.items():
        register(kind, encoder)
