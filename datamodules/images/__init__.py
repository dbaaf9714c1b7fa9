"""Image files: listing, label tables, transforms, datasets, caches.

Imports `settings`, `seeding`, `readers`, `batches` and `splits`.
"""
