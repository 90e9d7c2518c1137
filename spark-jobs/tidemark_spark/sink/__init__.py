"""The sink: rows to topics, for ``df.write`` and ``df.writeStream``; each batch exactly once.

Every task attempt enlists as a writer of the batch's transaction, sends its rows and reports a
receipt. The driver commits the receipts of the attempts that Spark counts in one call to the
transaction coordinator, and aborts all others. A batch is identified by (sink id, query id, batch
id), so a batch that is replayed after its commit is recognised and not written again.

| module | runs in | |
| --- | --- | --- |
| ``write_options`` | driver | options as text to ``WriteOptions``: pure |
| ``batch_writer``, ``stream_writer`` | driver, tasks | Spark's writer interfaces |
| ``foreach_batch`` | driver, tasks | a function for ``foreachBatch`` |
| ``schema`` | driver, tasks | columns that the sink accepts: pure |
| ``driver`` | driver | commits or aborts a batch |
| ``commit_protocol`` | driver, tasks | reports, the commit plan, comparison of replays: pure |
| ``task_writer`` | tasks | one task attempt |
| ``encode``, ``hashing`` | tasks | Arrow columns to encoded records, partitions of keys: pure |
| ``clients`` | driver, tasks | this process's clients, and their errors as ``SinkError`` |
| ``errors`` | both | errors of the sink |
| ``failpoints`` | both | named steps at which tests pause or kill a process |

Called by ``tidemark_spark.data_source``. It writes to topics and transactions of the cluster, and
to nothing else. It does not use the source.
"""
