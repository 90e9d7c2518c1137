"""Topics that members of a KIP-848 group subscribe to, by name or by a regular expression.

Called by the groups of the consumer protocol. Patterns are parsed and matched here, in time linear
in the length of a name.
"""
