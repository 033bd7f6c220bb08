"""Encoders of images, by projector type."""

ENCODERS = {
    "dots_ocr": "pumice_architectures.vision.documents:DotsOCR",
    "exaone4_5": "pumice_architectures.vision.qwen:Exaone45",
    "gemma3": "pumice_architectures.vision.gemma3:Gemma3",
    "gemma4uv": "pumice_architectures.vision.gemma4:Gemma4Unified",
    "gemma4v": "pumice_architectures.vision.gemma4:Gemma4",
    "glm4v": "pumice_architectures.vision.glm:GLM4V",
    "idefics3": "pumice_architectures.vision.idefics3:Idefics3",
    "internvl": "pumice_architectures.vision.internvl:InternVL",
    "kimik25": "pumice_architectures.vision.kimi:KimiK25",
    "kimivl": "pumice_architectures.vision.kimi:KimiVL",
    "lfm2": "pumice_architectures.vision.lfm2:LFM2VL",
    "lightonocr": "pumice_architectures.vision.pixtral:LightOnOCR",
    "llama4": "pumice_architectures.vision.llama4:Llama4",
    "mlp": "pumice_architectures.vision.llava:Llava",
    "paddleocr": "pumice_architectures.vision.documents:PaddleOCR",
    "pixtral": "pumice_architectures.vision.pixtral:Pixtral",
    "qwen2.5vl_merger": "pumice_architectures.vision.qwen:Qwen25VL",
    "qwen2vl_merger": "pumice_architectures.vision.qwen:Qwen2VL",
    "qwen3vl_merger": "pumice_architectures.vision.qwen:Qwen3VL",
    "resampler": "pumice_architectures.vision.minicpm:MiniCPMV",
}
