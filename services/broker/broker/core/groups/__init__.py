"""Core of the group coordinator: groups and committed offsets, as shards.

``GroupShard`` (``shard``) is one partition of ``__consumer_offsets``. The broker's shell submits
requests to it through the shard runtime, which appends its records. Groups of the classic protocol
are in ``classic``, those of KIP-848 in ``consumer``, topic subscriptions in ``subscriptions``.
Modules are pure; requests and replies are in ``requests``.
"""
