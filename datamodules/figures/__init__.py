"""Matplotlib figures of arrays and names; nothing here knows a dataset.

Imports `settings` and `batches`.
"""
