"""Core of the share-coordinator: share groups and state of share-partitions (KIP-932).

``ShareShard`` (``shard``) is one partition of ``__share_group_state``. Modules are pure. No service
runs this core yet.
"""
