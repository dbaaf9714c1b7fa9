"""The base class of all datamodules, and its parts.

Imports every room but `feature_packs` and `insight`.
"""
