"""Groups of the consumer protocol (KIP-848): heartbeats, assignors and reconciliation.

Called by the shard and by ``group_rules``. Logged state (``state``) changes only by records;
sessions and deadlines are lost with the coordinator, as the protocol allows.
"""
