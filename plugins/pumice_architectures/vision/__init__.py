"""Encoders of images, by projector type."""

ENCODERS = {
    "gemma3": "pumice_architectures.vision.gemma3:Gemma3",
    "idefics3": "pumice_architectures.vision.idefics3:Idefics3",
    "internvl": "pumice_architectures.vision.internvl:InternVL",
    "lfm2": "pumice_architectures.vision.lfm2:LFM2VL",
    "mlp": "pumice_architectures.vision.llava:Llava",
    "pixtral": "pumice_architectures.vision.pixtral:Pixtral",
    "qwen2.5vl_merger": "pumice_architectures.vision.qwen:Qwen25VL",
    "qwen2vl_merger": "pumice_architectures.vision.qwen:Qwen2VL",
    "qwen3vl_merger": "pumice_architectures.vision.qwen:Qwen3VL",
}
