"""Which samples are in a batch, and which batches a rank takes; arrays of indices only.

Imports `settings` and `seeding`.
"""
