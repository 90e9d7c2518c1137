"""Core of the broker: rules of partitions, replication and requests.

Modules are pure: parsed fields and a time in, plans and effects out. The shell calls them; they
call nothing but each other and the pure packages of ``tidemark``. ``Partition`` decides for one
replica, with its parts in modules of their own; ``groups`` is the group coordinator, ``share`` the
share-partitions of share groups.
"""
