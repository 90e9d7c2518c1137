"""The source: topics to rows, for ``spark.read`` and ``spark.readStream``.

The driver looks up topics and offsets, and plans ranges of offsets; a task reads one range as whole
record batches and decodes them into Arrow columns. The same range gives the same rows each time.

| module | runs in | |
| --- | --- | --- |
| ``read_options`` | driver | options as text to ``ReadOptions``: pure |
| ``batch_reader``, ``stream_reader`` | driver, tasks | Spark's reader interfaces |
| ``offset_lookup`` | driver | looks up topics, first, last and committed offsets |
| ``offset_ranges`` | driver | ranges of a batch, tasks, lost records, checkpoint JSON: pure |
| ``pushdown`` | driver | filters that narrow ranges: pure |
| ``task_reader`` | tasks | reads one range |
| ``decode`` | tasks | record batches to Arrow columns: pure |
| ``schema`` | both | the columns |

Called by ``tidemark_spark.data_source``. It reads from brokers and writes nothing, to the cluster
or elsewhere; Spark's checkpoint holds its position. It does not use the sink.
"""
