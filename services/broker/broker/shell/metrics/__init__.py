"""Metrics: how the broker's counters and state are shown to Prometheus.

Read at a scrape, and nothing is changed; only ``__main__`` and the generator of the reference pages
build a collector.
"""
