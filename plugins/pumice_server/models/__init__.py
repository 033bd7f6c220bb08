"""The served models: loaded and unloaded, and what protocols use of them."""
