"""Files and folders: delimited text, Parquet, encodings, path lists, caches, locks.

Imports `settings`.
"""
