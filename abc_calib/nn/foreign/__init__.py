"""Other people's models: attention along lines in models of ``transformers``."""
