"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Called by the shard and by ``group_rules``. Modules may touch the state of one group, its members
and their deadlines; they import neither the other protocol nor committed offsets.
"""
