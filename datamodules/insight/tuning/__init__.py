"""`tune`: batch size and workers found by measuring.

Imports what `insight` may.
"""
