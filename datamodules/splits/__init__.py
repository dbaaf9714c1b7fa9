"""Split samples into train, val and test; arrays of indices only.

Imports `settings`, `seeding` and `readers`.
"""
