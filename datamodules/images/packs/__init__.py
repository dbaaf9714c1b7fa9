"""Image packs: many images in a few memory-mapped files.

Imports what `images` may.
"""
