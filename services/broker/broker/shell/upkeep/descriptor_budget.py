"""How the descriptors of one broker are divided: connections, open segments, and the rest.

Held against the limit at start, so that the first to be refused is a connection that is one too
many, and not a read of the log.
"""

import logging
from typing import Final, NamedTuple

from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig
from broker.storage.directory import OPEN_FILES_MAX

log = logging.getLogger(__name__)

DESCRIPTORS_A_CONNECTION: Final = 2
"""The transport's, and the one that answers are sent by."""
OTHER_DESCRIPTORS: Final = 256
"""Listeners, gRPC, ZooKeeper, replication, worker processes, cold reads, compaction and a spare."""
SEGMENTS_SHARE: Final = 4
"""Open segments have at most a quarter of what there is."""
CONNECTIONS_MIN: Final = 16


class DescriptorBudget(NamedTuple):
    """What may be open at a time."""

    connections: int
    segments_a_directory: int


def divide(config: BrokerConfig, limit: int) -> DescriptorBudget:
    """The most that ``limit`` descriptors allow, up to what is configured. Raises ServiceError."""
    directories = len(config.log_dirs)
    segments = min(OPEN_FILES_MAX, limit // SEGMENTS_SHARE // directories)
    left = limit - segments * directories - OTHER_DESCRIPTORS
    connections = min(config.max_connections, left // DESCRIPTORS_A_CONNECTION)
    if connections < min(CONNECTIONS_MIN, config.max_connections):
        raise ServiceError(
            f"{limit} open files are too few for a broker; raise the hard limit (ulimit -Hn,"
            f" LimitNOFILE) to {wanted(config)} for {config.max_connections} connections",
            ExitCode.CONFIG,
        )
    return DescriptorBudget(connections, segments)


def wanted(config: BrokerConfig) -> int:
    """Descriptors with which nothing is made smaller."""
    own = OTHER_DESCRIPTORS + DESCRIPTORS_A_CONNECTION * config.max_connections
    directories = OPEN_FILES_MAX * len(config.log_dirs)
    return max(own + directories, directories * SEGMENTS_SHARE)


def within(config: BrokerConfig, budget: DescriptorBudget) -> BrokerConfig:
    """The configuration with as many connections as there may be; says so where that is fewer."""
    if budget.connections >= config.max_connections:
        return config
    log.warning(
        "fewer connections than configured: the limit of open files is too low",
        extra=fields(
            connections=budget.connections,
            configured=config.max_connections,
            limit_wanted=wanted(config),
        ),
    )
    return config.model_copy(update={"max_connections": budget.connections})
