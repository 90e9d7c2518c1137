"""RPC: the gRPC services of a broker.

The gRPC server calls them, and ``services.py`` has bound them to the objects that they use.
Services may touch partitions, transactions, groups, the relays and the metadata cache; only
``services.py`` is given the rooms of the broker.
"""
