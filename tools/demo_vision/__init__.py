"""Make the demo model that sees: pictures of shapes, questions about them, and training; see README.md."""
