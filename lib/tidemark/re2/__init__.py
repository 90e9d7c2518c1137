"""Regular expressions in RE2's syntax, matched in time linear in the length of a text.

KIP-848 and KIP-1152 have coordinators match the expressions of their clients, on the event loop.
"""
