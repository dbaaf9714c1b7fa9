"""Arguments a user passes, class lists, and the CPU cores this process may use.

Imports no other room.
"""
