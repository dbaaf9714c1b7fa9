"""Decode image files to uint8 pixels, or raise an error that names the file.

Imports what `images` may.
"""
