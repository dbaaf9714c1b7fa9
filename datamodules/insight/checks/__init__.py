"""Checks that `inspect` runs, one subject per file; each returns findings.

Imports what `insight` may.
"""
