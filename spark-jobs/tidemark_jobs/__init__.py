"""Tidemark's Spark jobs, one package each: ``reshard``, ``offload``, ``backfill``, ``sessions``.

A job is a program on top of the data source ``tidemark_spark``. Its module ``command`` parses the
command line and runs the job; ``spark-jobs/jobs`` has a script for ``spark-submit`` that calls it,
and ``python -m tidemark_jobs.<job>`` does the same without ``spark-submit``.

Jobs use the connector and the native client. The connector does not use the jobs, and no job uses
another one. Shared by several jobs: ``command`` (session, output, exit codes) and ``keys`` (rules
that extract a key from a record). Executors import this package only for ``offload``, whose tasks
write Parquet files.
"""
