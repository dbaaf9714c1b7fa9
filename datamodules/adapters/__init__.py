"""Datasets that users bring: labels are found, samples get a transform.

Imports every room below: `settings` to `texts`.
"""
