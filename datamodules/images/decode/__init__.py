"""One image file to uint8 pixels, or an error that names the file.

Imports what `images` may.
"""
