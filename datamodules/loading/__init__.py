"""Loaders and their workers: from a dataset and a sampler to batches.

Imports `settings`, `seeding`, `readers`, `batches`, `splits` and `sampling`.
"""
