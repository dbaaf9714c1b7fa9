"""Transforms applied faster: crop before decoding, normalize on the batch.

Imports what `images` may.
"""
