"""Text files, tokenizers, and datasets of token ids.

Imports `settings`, `seeding`, `readers`, `batches` and `splits`.
"""
