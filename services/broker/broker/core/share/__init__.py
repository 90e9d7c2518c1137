"""Share groups (KIP-932) at the partition leader: records, their locks and their delivery.

    SharePartition     view of one share group on one partition; it consists of
      Window           consecutive ranges of records from the start offset to the end offset
      acquisition      selection of records of a read for a member
      acknowledgement  checks and effects of acknowledgements
      KeyOrder         keys held by members, where a group orders records by key
      LockTimers       ends of locks and delays
      TransactionLocks records whose acknowledgement belongs to an open transaction
      StateWrites      writes to the share-coordinator, and transitions that wait for them
      recovery         window from the persisted state
      holds            ranges that a member or a transaction holds
    DeadLetters        transactions that copy rejected and exhausted records and archive them
    letter_queue       the dead-letter queue, and why a topic cannot be one
    letter_copies      the copies
    ShareSessions      partitions that members read from this broker, kept between requests
    fetch_plan         distribution of one request's records and bytes over its partitions
    log_batches        records for a group in a read of the log, from batch headers
    Loading            attempts to read the state, with pauses
    FetchQueue         waiting fetches in the order of their arrival
    Deadlines          one deadline for each share-partition
    request_rules      checks of requests that need no state
    inspection         ranges for browsing, counts for lag

All modules are pure: time is an argument, effects are returned values. A range of any length is one
object; single records cost memory of their own only after they were acknowledged one by one.
"""
