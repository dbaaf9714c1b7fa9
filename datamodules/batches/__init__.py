"""Types of batches, collating samples, normalizing images, and the dataset interface.

Imports `settings`, `seeding` and `readers`.
"""
