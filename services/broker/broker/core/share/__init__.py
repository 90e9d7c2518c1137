"""Share groups (KIP-932), the half of the partition leader: which member holds which records.

    SharePartition     one group's view of one partition; everything below belongs to it
      Window           consecutive ranges of records from the share-partition's start to its end
      acquisition      which records of a read go to a member
      acknowledgement  what a member says of records that it holds
      KeyOrder         which keys a member holds, where a group orders records by key
      LockTimers       when a lock ends
      StateWrites      what the share-coordinator is to keep; transitions wait for it
      recovery         a window from what the share-coordinator kept
    ShareSessions      what a member reads from this broker, request by request
    fetch_plan         how the records and bytes of one request are spread over its partitions

All is pure: time is an argument, and what is to be done is returned. A record costs memory of its
own only once a member names it alone; otherwise a range of any length is one object.
"""
