"""Topics that members of a KIP-848 group subscribe to, by name or by a regular expression.

Called by the groups of the consumer protocol. tidemark.re2 parses and matches the patterns.
"""
