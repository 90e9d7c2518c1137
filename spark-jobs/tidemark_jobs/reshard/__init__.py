"""``reshard``: copy topics into a topic that is sharded by another key, exactly once, in order.

    spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/reshard.py \\
        --bootstrap-servers broker-1:9292 --source queries-by-server --target queries-by-user \\
        --key field:3 --checkpoint /checkpoints/reshard [--available-now]

| module | |
| --- | --- |
| ``command``, ``options`` | the command line, and what it is parsed into |
| ``query`` | runs the streaming query |
| ``plan`` | the rules that must stay the same for the life of a checkpoint, stored with it |
| ``transform``, ``partitioners`` | column expressions: the key, its partition, the order of rows |

Called by ``spark-jobs/jobs/reshard.py``. Everything runs on the driver; executors run only what
Spark compiles and, for the partitioner ``murmur2``, one function over Arrow columns. The records
of a batch and the offsets read from the source are committed in one transaction.
docs/spark/reshard.md describes the job.
"""
