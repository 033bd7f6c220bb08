"""Speech models, by the type of the projector file's generator."""

SPEECH_MODELS = {
    "pockettts_gen": "pumice_architectures.speaking.pocket:PocketTTS",
    "qwen3tts_gen": "pumice_architectures.speaking.qwen:Qwen3TTS",
}
