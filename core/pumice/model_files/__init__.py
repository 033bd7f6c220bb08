"""Models by their paths: opened, converted in memory if they are Hugging Face folders, and summarized."""
