"""What a batch is, how samples become one, and how images are normalized.

Imports `settings`, `seeding` and `readers`.
"""
