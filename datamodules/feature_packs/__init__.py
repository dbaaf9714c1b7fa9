"""Outputs of a frozen model, written to disk and read back.

Imports every room but `insight`.
"""
