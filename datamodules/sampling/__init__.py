"""Which samples make a batch, and which batches a rank gets; index arrays only.

Imports `settings` and `seeding`.
"""
