"""Metrics: the broker's counters and state, as Prometheus families.

A scrape calls BrokerCollector, which ``__main__`` and the generator of the reference pages build.
Modules here read the objects named in Measured and change nothing.
"""
