"""A seed for each sample, and random states that are saved and restored.

Imports `settings`.
"""
