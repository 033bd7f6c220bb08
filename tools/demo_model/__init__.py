"""The bundled demo model: a story grammar, its reader, and the training of a small llama model on its stories."""
