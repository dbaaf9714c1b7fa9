"""Columns of CSV and Parquet files, encoded as the rows of a dataset.

Imports `settings`, `seeding`, `readers`, `batches` and `splits`.
"""
