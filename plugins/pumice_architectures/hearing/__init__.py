"""Encoders of sounds, by projector type."""

SOUND_ENCODERS = {
    "gemma4ua": "pumice_architectures.hearing.gemma4:Gemma4Unified",
    "musicflamingo": "pumice_architectures.hearing.whisper:AudioFlamingo3",
    "qwen2a": "pumice_architectures.hearing.whisper:Qwen2Audio",
    "qwen3a": "pumice_architectures.hearing.qwen3:Qwen3Audio",
    "ultravox": "pumice_architectures.hearing.whisper:Ultravox",
    "voxtral": "pumice_architectures.hearing.whisper:Voxtral",
}
