"""Core of the txn-coordinator: transactions of one or many writers, sink batches, as shards.

``TxnShard`` (``shard``) is one partition of ``__transaction_state``. The shell submits requests to
it through the shard runtime, which appends its records. ``MarkerQueue`` decides which markers are
sent where and when. Modules are pure.
"""
