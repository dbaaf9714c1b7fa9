"""Which sample is in train, val and test; index arrays only.

Imports `settings`, `seeding` and `readers`.
"""
