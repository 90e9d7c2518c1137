"""``sessions``: user sessions and totals per user, from a topic that is keyed by user.

    spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/sessions.py \\
        --bootstrap-servers broker-1:9292 --source access-by-user --format access-log \\
        --checkpoint /checkpoints/sessions --available-now --report sessions.html

Two streaming queries, each exactly once. The first groups each user's records into sessions
(Spark's session windows, closed by the watermark) and appends every closed session to
``--sessions-topic`` under the user's key. The second keeps the totals of each user in
``--users-topic``, a compacted topic whose newest record of a key holds the current totals.

| module | |
| --- | --- |
| ``command``, ``options`` | the command line, and what it is parsed into |
| ``queries`` | creates missing topics and runs the two queries |
| ``frames`` | column expressions: parsing, sessions, totals, counts for the report |
| ``figures`` | reads the figures of the report from the topics |
| ``report``, ``charts`` | the HTML page and its SVG charts: pure |

Called by ``spark-jobs/jobs/sessions.py``; runs on the driver.
"""
