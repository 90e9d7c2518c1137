"""Budget of file descriptors of one broker: connections, open segments, and the rest.

Compared with the limit at the start, so that a connection is refused before a read of a log is.
"""

import logging
import resource
from typing import Final, NamedTuple

from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig
from broker.storage.directory import OPEN_FILES_MAX

log = logging.getLogger(__name__)

DESCRIPTORS_A_CONNECTION: Final = 2
"""Descriptor of the transport, and the one for sending."""
OTHER_DESCRIPTORS: Final = 256
"""Listeners, gRPC, ZooKeeper, replication, worker processes, cold reads, compaction and a spare."""
SEGMENTS_SHARE: Final = 4
"""Open segments take at most a quarter of the descriptors."""
CONNECTIONS_MIN: Final = 16


class DescriptorBudget(NamedTuple):
    """Numbers that may be open at a time."""

    connections: int
    segments_a_directory: int


def divide(config: BrokerConfig, limit: int) -> DescriptorBudget:
    """Return the largest numbers that ``limit`` descriptors allow, up to what is configured. Raises
    ServiceError.
    """
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


def connections_possible(config: BrokerConfig) -> int:
    """Return the number of connections to which ``max.connections`` may be raised at run time:
    within this process's limit of open files, and at least what it started with.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    directories = len(config.log_dirs)
    segments = min(OPEN_FILES_MAX, limit // SEGMENTS_SHARE // directories)
    left = limit - segments * directories - OTHER_DESCRIPTORS
    return max(config.max_connections, left // DESCRIPTORS_A_CONNECTION)


def wanted(config: BrokerConfig) -> int:
    """Return the number of descriptors with which nothing is reduced."""
    own = OTHER_DESCRIPTORS + DESCRIPTORS_A_CONNECTION * config.max_connections
    directories = OPEN_FILES_MAX * len(config.log_dirs)
    return max(own + directories, directories * SEGMENTS_SHARE)


def within(config: BrokerConfig, budget: DescriptorBudget) -> BrokerConfig:
    """Return the configuration with as many connections as the budget allows, and log if that is
    fewer.
    """
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
