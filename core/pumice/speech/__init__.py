"""Speech of language models of audio codes: prompts, codes to samples, and files of sound."""
