"""Consuming: fetching, positions, group membership, committed offsets and raw ranges.

``Consumer`` is the public class for records, ``RangeReader`` the one for whole batches of an offset
range. ``Fetcher`` reads ahead, ``Membership`` (a pure state machine) and ``GroupMember`` follow the
group protocol, ``OffsetStorage`` keeps committed offsets in Kafka or, while a group migrates, in
ZooKeeper.

Called by applications, by `tidemark.client.admin` and `tidemark.client.transactions` (offsets of
groups), and by `tidemark.client.sync`. May use `tidemark.client.wire`; imports neither producers
nor transactions.
"""
