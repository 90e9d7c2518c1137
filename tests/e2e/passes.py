"""Periodic work of the services, brought into every test.

What a service does once in a minute falls into one run of a test in many: such a test fails
seldom, and nobody finds out why. With ``PASSES=often``, as in ``make soak``, clusters of tests do
it all the time; what a test sets itself stays as it is.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.cli.dev.cluster import Config

OFTEN: Final[Mapping[str, Config]] = {
    "broker": {
        "log.cleaner.backoff.ms": 300,
        "log.flush.offset.checkpoint.interval.ms": 300,
        "log.retention.check.interval.ms": 300,
        "offsets.retention.check.interval.ms": 1_000,
        "producer.id.expiration.check.interval.ms": 1_000,
    },
    "controller": {"leader.imbalance.check.interval.seconds": 2},
    "txn-coordinator": {"transaction.remove.expired.transaction.cleanup.interval.ms": 1_000},
    "share-coordinator": {
        "share.coordinator.cold.partition.snapshot.interval.ms": 1_000,
        "share.coordinator.state.topic.prune.interval.ms": 1_000,
    },
}
"""Configuration by kind of service."""


def of_service(kind: str) -> Config:
    """Return the intervals that a service of this kind is to have; none unless asked for."""
    return dict(OFTEN[kind]) if os.environ.get("PASSES") == "often" else {}


def flags(kind: str, given: Sequence[str]) -> list[str]:
    """Return the same as flags of its process, without those that it has been given."""
    wanted = {f"--{key}": str(value) for key, value in of_service(kind).items()}
    return [word for pair in wanted.items() if pair[0] not in given for word in pair]


def beneath(overrides: Mapping[str, Config]) -> dict[str, Config]:
    """Return a cluster's configuration (by kind or by process) with the intervals beneath it."""
    of_kinds = {kind: {**of_service(kind), **overrides.get(kind, {})} for kind in OFTEN}
    return {**overrides, **{kind: config for kind, config in of_kinds.items() if config}}
