"""Producing: records into batches, batches to leaders, acknowledgements back to callers.

``Producer`` is the public class. ``Accumulator`` collects records into batches, ``PartitionQueue``
(a pure state machine for one partition) keeps order and sequence numbers, ``Sender`` sends what is
ready.

Called by applications, by `tidemark.client.transactions` and by `tidemark.client.sync`. May use
`tidemark.client.wire`; imports neither consumers nor transactions.
"""
