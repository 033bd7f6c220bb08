"""Encoders of sounds, by projector type."""

SOUND_ENCODERS = {
    "dots3note_a": "pumice_architectures.hearing.qwen3:Dots3NoteAudio",
    "gemma3na": "pumice_architectures.hearing.gemma3n:Gemma3nConformer",
    "gemma4a": "pumice_architectures.hearing.conformer:Gemma4Conformer",
    "gemma4ua": "pumice_architectures.hearing.gemma4:Gemma4Unified",
    "glma": "pumice_architectures.hearing.whisper:GLMASR",
    "granite_speech": "pumice_architectures.hearing.granite:GraniteSpeech",
    "lfm2a": "pumice_architectures.hearing.fast_conformer:FastConformer",
    "meralion": "pumice_architectures.hearing.whisper:MERaLiON",
    "mimo_audio": "pumice_architectures.hearing.mimo:MiMoAudio",
    "musicflamingo": "pumice_architectures.hearing.whisper:AudioFlamingo3",
    "parakeet": "pumice_architectures.hearing.fast_conformer:Parakeet",
    "qwen2.5o": "pumice_architectures.hearing.whisper:Qwen25Omni",
    "qwen2a": "pumice_architectures.hearing.whisper:Qwen2Audio",
    "qwen3a": "pumice_architectures.hearing.qwen3:Qwen3Audio",
    "ultravox": "pumice_architectures.hearing.whisper:Ultravox",
    "voxtral": "pumice_architectures.hearing.whisper:Voxtral",
    "whisper": "pumice_architectures.hearing.whisper:Transcribing",
}
