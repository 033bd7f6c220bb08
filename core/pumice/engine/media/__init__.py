"""Images, sounds and videos of prompts: their encoders and rows."""
