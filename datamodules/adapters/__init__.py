"""Datasets that users bring: find their labels, split their samples, apply transforms.

Imports every room below: `settings` to `texts`.
"""
