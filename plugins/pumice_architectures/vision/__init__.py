"""Encoders of images, by projector type."""

ENCODERS = {
    "idefics3": "pumice_architectures.vision.idefics3:Idefics3",
    "mlp": "pumice_architectures.vision.llava:Llava",
}
