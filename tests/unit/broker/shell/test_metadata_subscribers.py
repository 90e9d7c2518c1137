"""Every part of a broker that acts on changes of metadata, by kind of change, in order."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from broker.config import BrokerConfig
from broker.shell.broker_service import BrokerService
from broker.shell.seams import Seams
from broker.shell.start import OpenedDirectories
from manual_clock import ManualClock
from tidemark.model.metadata_change import Kind
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.worker_pool import WorkerPool

EVERY_IMAGE = ["groups", "membership"]
"""They look at the image itself."""


async def metadata_of_a_broker(path: Path) -> MetadataCache:
    """That of a whole object graph that is never run."""
    nobody = cast("Any", None)
    seams = Seams(
        clock=ManualClock(),
        dice=random.Random(7),
        session=nobody,
        controller=nobody,
        channels=ChannelPool(),
        connect_leader=nobody,
        make_grpc_server=nobody,
        make_workers=WorkerPool,
        make_threads=ThreadPoolExecutor,
        opener=nobody,
        after_load=nobody,
    )
    config = BrokerConfig(broker_id=1, log_dirs=(str(path),))
    return BrokerService(config, OpenedDirectories((), "boot"), seams).server.metadata


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Kind.TOPICS_CREATED, ["hosting", "parked-requests"]),
        (Kind.TOPICS_DELETED, ["hosting", "parked-requests", "groups", "shares"]),
        (Kind.PARTITIONS, ["hosting", "parked-requests", "shares"]),
        (Kind.TOPIC_CONFIGS, ["hosting", "parked-requests"]),
        (Kind.BROKERS, ["hosting", "live-brokers", "parked-requests"]),
        (Kind.BROKER_CONFIGS, ["hosting", "throttles", "settings", "parked-requests"]),
        (Kind.GROUP_CONFIGS, ["shares"]),
        (Kind.USERS, []),
        (Kind.ACLS, ["authorizer"]),
        (Kind.QUOTAS, ["quotas"]),
        (Kind.CLIENT_METRICS, ["client-metrics"]),
        (Kind.COORDINATORS, []),
        (Kind.FIRST, ["hosting", "parked-requests", "listeners"]),
        (Kind.POSITION, EVERY_IMAGE),
    ],
)
def test_subscribers_by_kind_of_change(kind: Kind, names: list[str], tmp_path: Path) -> None:
    metadata = asyncio.run(metadata_of_a_broker(tmp_path))
    assert list(metadata.subscribers(kind)) == names


def test_no_kind_of_change_is_left_out_of_the_table() -> None:
    (table,) = [
        one
        for one in test_subscribers_by_kind_of_change.pytestmark  # type: ignore[attr-defined]
        if one.name == "parametrize"
    ]
    assert {kind for kind, _ in table.args[1]} == set(Kind)
