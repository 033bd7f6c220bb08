"""Conversions of Hugging Face checkpoints to GGUF; a module holds families with similar checkpoints."""

# Module -> its class -> the first entries of `architectures` in `config.json` that it converts.
CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "bailing": {
        "BailingMoE": ("BailingMoeForCausalLM",),
        "BailingMoE2": ("BailingMoeV2ForCausalLM",),
        "BailingMoE3": ("BailingMoeV3ForCausalLM",),
        "BailingMoE3VL": ("BailingMoeV3VLForConditionalGeneration",),
        "SarvamMoE": ("SarvamMoEForCausalLM", "modeling_sarvam_moe.SarvamMoEForCausalLM"),
    },
    "bert": {
        "Bert": ("BertModel", "BertForMaskedLM", "CamembertModel", "BertForSequenceClassification"),
        "DistilBert": ("DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"),
        "EuroBert": ("EuroBertModel", "JinaEmbeddingsV5Model"),
        "JinaBert2": ("JinaBertModel", "JinaBertForMaskedLM"),
        "ModernBert": ("ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"),
        "NeoBert": ("NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification"),
        "NomicBert": ("NomicBertModel",),
        "Roberta": ("RobertaModel", "RobertaForSequenceClassification"),
        "XLMRoberta": ("XLMRobertaModel", "XLMRobertaForSequenceClassification"),
    },
    "cohere": {
        "CommandR": ("CohereForCausalLM",),
        "Cohere2": ("Cohere2ForCausalLM",),
        "Cohere2MoE": ("Cohere2MoeForCausalLM",),
    },
    "deepseek": {
        "DeepSeek": ("DeepseekForCausalLM",),
        "DeepSeek2": ("DeepseekV2ForCausalLM", "YoutuForCausalLM", "YoutuVLForConditionalGeneration"),
        "DeepSeek3": (
            "DeepseekV3ForCausalLM", "KimiVLForConditionalGeneration", "KimiK25ForConditionalGeneration",
        ),
        "DeepSeek32": ("DeepseekV32ForCausalLM",),
        "DeepSeekOCR": ("DeepseekOCRForCausalLM", "UnlimitedOCRForCausalLM"),
    },
    "deepseek4": {
        "DSpark4": ("DeepseekV4DSparkModel",),
        "DeepSeek4": ("DeepseekV4ForCausalLM",),
    },
    "dflash": {
        "DFlash": ("DFlashDraftModel", "DFlash2DraftModel"),
        "DSpark": (
            "Qwen3DSparkModel", "DSparkDraftModel", "DSparkSpeculator", "Lfm2DSparkDraftModel", "LingDSparkModel",
        ),
        "Gemma4DSpark": ("Gemma4DSparkModel",),
        "MuseGlimmerAssistant": ("MuseGlimmerAssistantModel",),
    },
    "dots": {
        "Dots3": (
            "Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration", "Dots3NoteTextForCausalLM",
        ),
    },
    "ernie": {
        "Ernie45": ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
        "Ernie45MoE": ("Ernie4_5_MoeForCausalLM",),
        "PaddleOCR": ("PaddleOCRVLForConditionalGeneration",),
    },
    "exaone": {
        "Exaone": ("ExaoneForCausalLM",),
        "Exaone4": ("Exaone4ForCausalLM",),
        "Exaone45": ("Exaone4_5_ForConditionalGeneration",),
        "ExaoneMoE": ("ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"),
    },
    "fused": {
        "Baichuan": ("BaichuanForCausalLM", "BaiChuanForCausalLM"),
        "Deci": ("DeciLMForCausalLM",),
        "InternLM2": ("InternLM2ForCausalLM",),
        "InternLM3": ("InternLM3ForCausalLM",),
        "MiniCPM3": ("MiniCPM3ForCausalLM",),
        "OpenELM": ("OpenELMForCausalLM",),
        "Xverse": ("XverseForCausalLM",),
    },
    "gemma": {
        "Gemma": ("GemmaForCausalLM",),
        "Gemma2": ("Gemma2ForCausalLM",),
        "Gemma3": ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    },
    "gemma4": {
        "EmbeddingGemma": ("Gemma3TextModel",),
        "Gemma3n": ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
        "Gemma4": (
            "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration",
        ),
        "Gemma4Assistant": ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"),
    },
    "glm": {
        "ChatGLM": ("GlmForCausalLM", "ChatGLMModel", "ChatGLMForConditionalGeneration"),
        "GLM4": ("Glm4ForCausalLM", "Glm4vForConditionalGeneration"),
        "GLM4MoE": ("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration"),
        "GLM4MoELite": ("Glm4MoeLiteForCausalLM",),
        "GLMDSA": ("GlmMoeDsaForCausalLM",),
        "GLMOCR": ("GlmOcrForConditionalGeneration",),
        "SolarOpen": ("SolarOpenForCausalLM",),
    },
    "glm_next": {"GLM5Next": ("Glm5NextForConditionalGeneration",)},
    "gpt": {
        "Bloom": ("BloomForCausalLM", "BloomModel"),
        "CodeShell": ("CodeShellForCausalLM",),
        "Falcon": ("FalconForCausalLM", "RWForCausalLM"),
        "GPT2": ("GPT2LMHeadModel",),
        "GPTNeoX": ("GPTNeoXForCausalLM",),
        "Jais": ("JAISLMHeadModel",),
        "Jais2": ("Jais2ForCausalLM",),
        "MPT": ("MPTForCausalLM",),
        "RuGPT3XL": ("RuGPT3XLForCausalLM",),
        "Refact": ("GPTRefactForCausalLM",),
        "StableLM": ("StableLmForCausalLM", "StableLMEpochForCausalLM", "LlavaStableLMEpochForCausalLM"),
        "StarCoder": ("GPTBigCodeForCausalLM",),
        "StarCoder2": ("Starcoder2ForCausalLM",),
    },
    "gpt_oss": {"GptOss": ("GptOssForCausalLM",)},
    "granite": {
        "Granite": ("GraniteForCausalLM",),
        "GraniteHybrid": ("GraniteMoeHybridForCausalLM", "BambaForCausalLM"),
        "GraniteMoE": ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        "GraniteSpeech": ("GraniteSpeechForConditionalGeneration", "GraniteSpeechPlusForConditionalGeneration"),
        "GraniteSWA": ("GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM"),
    },
    "granite_switch": {"GraniteSwitch": ("GraniteSwitchForCausalLM",)},
    "hrm": {"HRMText": ("HrmTextForCausalLM",)},
    "hunyuan": {
        "HunyuanDense": ("HunYuanDenseV1ForCausalLM",),
        "HunyuanMoE": ("HunYuanMoEV1ForCausalLM",),
        "HunyuanV3": ("HYV3ForCausalLM",),
        "HunyuanV4": ("HYV4ForCausalLM",),
        "HunyuanVL": ("HunYuanVLForConditionalGeneration",),
    },
    "hybrid": {
        "Jamba": ("JambaForCausalLM",),
        "LFM2": ("Lfm2ForCausalLM", "LFM2ForCausalLM"),
        "LFM2Embedding": ("Lfm2Model", "Lfm2BidirectionalModel"),
        "LFM2MoE": ("Lfm2MoeForCausalLM",),
    },
    "kimi": {
        "KimiK3": ("KimiK3ForConditionalGeneration",),
        "KimiLinear": ("KimiLinearForCausalLM", "KimiLinearModel"),
    },
    "laguna": {"Laguna": ("LagunaForCausalLM",)},
    "llama": {
        "AfMoE": ("AfmoeForCausalLM",),
        "Apertus": ("ApertusForCausalLM",),
        "Arcee": ("ArceeForCausalLM",),
        "CogVLM": ("CogVLMForCausalLM",),
        "Eagle3": (
            "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel",
        ),
        "Janus": ("JanusForConditionalGeneration",),
        "Llama": (
            "LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel", "MistralForCausalLM", "MixtralForCausalLM",
            "IQuestCoderForCausalLM", "VLlama3ForCausalLM", "LlavaForConditionalGeneration",
            "VoxtralForConditionalGeneration",
        ),
        "Llama4": ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        "LlamaEmbed": ("LlamaBidirectionalModel",),
        "MiniCPM": ("MiniCPMForCausalLM",),
        "Nanbeige": ("NanbeigeForCausalLM",),
        "Sarashina2": ("Sarashina2VisionForCausalLM",),
        "SmolLM3": ("SmolLM3ForCausalLM",),
    },
    "mamba": {
        "FalconH1": ("FalconH1ForCausalLM",),
        "Mamba": ("MambaForCausalLM", "MambaLMHeadModel", "FalconMambaForCausalLM"),
        "Mamba2": ("Mamba2ForCausalLM",),
    },
    "mimo": {"MiMo2": ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")},
    "minimax": {
        "MiniMax01": ("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"),
        "MiniMaxM2": ("MiniMaxM2ForCausalLM",),
        "MiniMaxM3": ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"),
    },
    "mistral": {"Mistral3": ("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration")},
    "moe": {
        "Arctic": ("ArcticForCausalLM",),
        "DBRX": ("DbrxForCausalLM",),
        "Grok": ("GrokForCausalLM", "Grok1ForCausalLM"),
        "Maple": ("MapleForCausalLM",),
        "SmallThinker": ("SmallThinkerForCausalLM",),
    },
    "muse": {"MuseGlimmer": ("MuseGlimmerForConditionalGeneration",)},
    "nemotron": {
        "Nemotron": ("NemotronForCausalLM",),
        "NemotronH": ("NemotronHForCausalLM",),
        "NemotronHPuzzle": ("NemotronHPuzzleForCausalLM",),
    },
    "olmo": {
        "Olmo": ("OlmoForCausalLM", "OLMoForCausalLM"),
        "Olmo2": ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
        "Olmoe": ("OlmoeForCausalLM",),
    },
    "phi": {
        "Phi2": ("PhiForCausalLM",),
        "Phi3": ("Phi3ForCausalLM", "Phi4ForCausalLMV"),
        "PhiMoE": ("PhiMoEForCausalLM", "PhimoeForCausalLM"),
    },
    "plamo": {
        "Plamo": ("PlamoForCausalLM",),
        "Plamo2": ("Plamo2ForCausalLM", "PLaMo2ForCausalLM"),
        "Plamo3": ("Plamo3ForCausalLM", "PLaMo3ForCausalLM"),
    },
    "plain": {
        "BitNet": ("BitnetForCausalLM", "BitNetForCausalLM"),
        "Chameleon": ("ChameleonForConditionalGeneration", "ChameleonForCausalLM"),
        "LLaDA": ("LLaDAModelLM",),
        "Maincoder": ("MaincoderForCausalLM",),
        "Orion": ("OrionForCausalLM",),
        "PLM": ("PLMForCausalLM",),
        "PanguEmbedded": ("PanguEmbeddedForCausalLM",),
        "SeedOSS": ("SeedOssForCausalLM",),
        "Spark25": ("Spark2_5ForCausalLM",),
        "Talkie": ("TalkieForCausalLM",),
    },
    "qwen": {
        "Dots1": ("Dots1ForCausalLM",),
        "Dream": ("DreamModel",),
        "GroveMoE": ("GroveMoeForCausalLM", "modeling_grove_moe.GroveMoeForCausalLM"),
        "LLaDAMoE": ("LLaDAMoEModel", "LLaDAMoEModelLM"),
        "Mellum": ("MellumForCausalLM",),
        "Qwen": ("QWenLMHeadModel",),
        "Qwen2": (
            "Qwen2ForCausalLM", "Qwen2Model", "Qwen2AudioForConditionalGeneration", "KORMoForCausalLM",
            "AudioFlamingo3ForConditionalGeneration", "DotsOCRForCausalLM",
        ),
        "Qwen2MoE": ("Qwen2MoeForCausalLM",),
        "Qwen2VL": (
            "Qwen2VLForConditionalGeneration", "Qwen2VLModel", "Qwen2_5_VLForConditionalGeneration",
            "Qwen2_5OmniModel",
        ),
        "Qwen3": ("Qwen3ForCausalLM", "Qwen3Model", "StepVLForConditionalGeneration"),
        "Qwen3ASR": ("Qwen3ASRForConditionalGeneration",),
        "Qwen3MoE": ("Qwen3MoeForCausalLM",),
        "Qwen3OmniMoE": ("Qwen3OmniMoeForConditionalGeneration",),
        "Qwen3VL": ("Qwen3VLForConditionalGeneration",),
        "Qwen3VLMoE": ("Qwen3VLMoeForConditionalGeneration",),
        "RND1": ("RND1",),
    },
    "qwen_next": {
        "MiniCPMV46": ("MiniCPMV4_6ForConditionalGeneration",),
        "Qwen35": ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
        "Qwen35MoE": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        "Qwen3Next": ("Qwen3NextForCausalLM",),
    },
    "qwen4": {"Qwen4Exp": ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration")},
    "rwkv": {
        "ARWKV7": ("RwkvHybridForCausalLM",),
        "RWKV6": ("Rwkv6ForCausalLM",),
        "RWKV6Qwen2": ("RWKV6Qwen2ForCausalLM",),
        "RWKV7": ("Rwkv7ForCausalLM", "RWKV7ForCausalLM"),
    },
    "sound": {
        "LFM25AudioTokenizer": ("Lfm25AudioTokenizer",),
        "PocketTTS": ("PocketTTSModel",),
        "Qwen3TTS": ("Qwen3TTSForConditionalGeneration",),
        "WavTokenizer": ("WavTokenizerDec",),
    },
    "step": {"Step35": ("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration")},
    "t5": {
        "T5": (
            "T5ForConditionalGeneration", "T5WithLMHeadModel", "MT5ForConditionalGeneration",
            "UMT5ForConditionalGeneration", "UMT5Model",
        ),
        "T5Encoder": ("T5EncoderModel",),
    },
}  # fmt: skip

CONVERSIONS = {
    name: f"pumice_architectures.conversions.{module}:{cls}"
    for module, classes in CLASSES.items()
    for cls, names in classes.items()
    for name in names
}
"""Conversion of each Hugging Face model class, imported when a folder needs it."""

PROJECTORS = {
    name: f"pumice_architectures.conversions.{cls}"
    for cls, names in {
        "hearing:AudioFlamingo3": ("AudioFlamingo3ForConditionalGeneration",),
        "hearing:Gemma4Conformer": ("Gemma4ForConditionalGeneration",),
        "hearing:GLMASR": ("GlmasrModel",),
        "hearing:MERaLiON": ("MERaLiON2ForConditionalGeneration",),
        "hearing:Qwen25Omni": (
            "Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniThinkerForConditionalGeneration",
        ),
        "hearing:Qwen3Omni": ("Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration"),
        "hearing:Qwen2Audio": ("Qwen2AudioForConditionalGeneration",),
        "hearing:Qwen3ASRAudio": ("Qwen3ASRForConditionalGeneration",),
        "hearing:Ultravox": ("UltravoxModel",),
        "hearing:Voxtral": ("VoxtralForConditionalGeneration",),
        "speaking:PocketTTSSpeech": ("PocketTTSModel",),
        "vision:Exaone45": ("Exaone4_5_ForConditionalGeneration",),
        "vision:Gemma3": ("Gemma3ForConditionalGeneration",),
        "vision:Idefics3": ("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
        "vision:InternVL": ("InternVLForConditionalGeneration", "InternVLChatModel"),
        "vision:JanusPro": ("JanusForConditionalGeneration",),
        "vision:LFM2VL": ("Lfm2VlForConditionalGeneration",),
        "vision:Llava": ("LlavaForConditionalGeneration",),
        "vision:LlavaNext": ("LlavaNextForConditionalGeneration",),
        "vision:Pixtral": ("Mistral3ForConditionalGeneration",),
        "vision:Qwen2VL": ("Qwen2VLForConditionalGeneration", "Qwen2VLModel", "Qwen2_5_VLForConditionalGeneration"),
        "vision:Qwen3VL": (
            "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ),
        "vision_documents:DotsOCR": ("DotsOCRForCausalLM",),
        "vision_documents:GLM4V": (
            "Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration", "GlmOcrForConditionalGeneration",
        ),
        "vision_documents:HunyuanVL": ("HunYuanVLForConditionalGeneration",),
        "vision_documents:LightOnOCR": ("LightOnOCRForConditionalGeneration", "LightOnOcrForConditionalGeneration"),
        "vision_documents:MiniCPMV46": ("MiniCPMV4_6ForConditionalGeneration",),
        "vision_documents:PaddleOCR": ("PaddleOCRVLForConditionalGeneration",),
        "vision_more:GLM5V": ("Glm5NextForConditionalGeneration",),
        "vision_more:Ling3VL": ("BailingMoeV3VLForConditionalGeneration",),
        "vision_more:MiMoVL": ("MiMoV2ForCausalLM",),
        "vision_more:MiniMaxM3": ("MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3VLForConditionalGeneration"),
        "vision_muse:MuseGlimmer": ("MuseGlimmerForConditionalGeneration",),
        "vision_more:NemotronV2VL": ("NemotronH_Nano_VL_V2",),
        "vision_more:Phi4": ("Phi4ForCausalLMV",),
        "vision_more:Step3VL": ("StepVLForConditionalGeneration", "Step3p7ForConditionalGeneration"),
        "vision_more:YoutuVL": ("YoutuVLForConditionalGeneration",),
        "vision_recent:Gemma4Unified": ("Gemma4UnifiedForConditionalGeneration",),
        "vision_recent:KimiK25": ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"),
        "vision_recent:KimiVL": ("KimiVLForConditionalGeneration",),
        "vision_recent:Llama4": ("Llama4ForConditionalGeneration",),
    }.items()
    for name in names
}  # fmt: skip
"""Conversion of the projector of each vision model class."""
