"""``offload``: copy topics into Parquet files, one task a partition, every record exactly once.

    spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/offload.py \\
        --bootstrap-servers broker-1:9292 --topics orders,clicks --output /lake/raw

A run continues where the last one ended and stops at the offsets that were committed when it
started. It works in rounds. The tasks of a round write Parquet files into a staging directory; then
the driver commits the round by creating the next version of the *manifest*, which lists the files
and the offsets they cover. A run can be killed at any moment and started again.

| module | |
| --- | --- |
| ``command``, ``options`` | the command line, and what it is parsed into |
| ``rounds`` | plans, reads, writes and commits rounds |
| ``manifest`` | versions, coverage and their JSON: pure |
| ``manifest_directory`` | the output directory: commits versions, publishes files |
| ``staged_files`` | the Spark format ``tidemark-files``, which writes a round's files |
| ``parquet_files`` | Parquet files written by one task |

Called by ``spark-jobs/jobs/offload.py``. ``staged_files``, ``parquet_files`` and ``manifest`` are
imported by executors too. Only ``manifest_directory`` changes what readers of the output see.
"""
