"""``backfill``: write files into a topic, every record exactly once: lines of text, Parquet rows.

    spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/backfill.py \\
        --bootstrap-servers broker-1:9292 --path /logs/2026 --format text \\
        --key access-log:host --topic access-by-server --checkpoint /checkpoints/backfill

A streaming query from Spark's file source to the exactly-once sink. Before a batch is read, the
file source records in the checkpoint which files belong to it; the sink records which batches were
committed. So a run can be killed at any moment and started again, and picks up new files.

| module | |
| --- | --- |
| ``command``, ``options`` | the command line, and what it is parsed into |
| ``query`` | runs the streaming query, and refuses to write everything again by accident |
| ``transform`` | rows of files to rows of the sink |

Called by ``spark-jobs/jobs/backfill.py``; runs on the driver.
"""
