"""Arguments a user passes, class names, and the cores this process may use.

Imports no other room.
"""
