"""Replicas that move between the log directories of a broker, while it is written to, killed and
started again.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType
from e2e.command_line import Cli
from e2e.disk_fixtures import (
    WAIT_S,
    Load,
    OneBroker,
    noise,
    one_broker,
    produce,
    read_log,
    under_load,
    values_of,
)
from tidemark.client.sync.admin import Admin
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode
from waiting import wait_for

pytestmark = pytest.mark.e2e

RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
STILL: Final = 1
"""Bytes a second: the first chunk is copied, and then nothing."""
FIRST_BYTES: Final = 3_000_000
"""More than a chunk."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    with one_broker(tmp_path_factory.mktemp("moves")) as running:
        directories = [str(running.data.parent / f"disk-{one}") for one in "ab"]
        running.start_broker(log_dirs=",".join(directories))
        yield running


class Directories:
    """The two log directories of the broker, and what is in them."""

    def __init__(self, broker: OneBroker) -> None:
        self._bootstrap = broker.bootstrap
        self.paths = broker.log_dirs.split(",")

    def logs(self, topic: str) -> dict[str, tuple[bool, int]]:
        """By directory: whether the log of partition 0 there is a future log, and its lag."""
        with Admin(self._bootstrap) as admin:
            return {
                each.path: (replica.is_future, replica.offset_lag)
                for each in admin.describe_log_dirs([1])
                for partition, replica in each.replicas.items()
                if partition == TopicPartition(topic, 0)
            }

    def home(self, topic: str) -> str:
        (path,) = [path for path, (future, _) in self.logs(topic).items() if not future]
        return path

    def other(self, path: str) -> str:
        (other,) = [one for one in self.paths if one != path]
        return other

    def move(self, path: str, topic: str, partition: int = 0) -> ErrorCode:
        one = TopicPartition(topic, partition)
        with Admin(self._bootstrap) as admin:
            return admin.alter_replica_log_dirs(1, {one: path})[one]

    def is_only_in(self, path: str, topic: str) -> bool:
        """Whether no other log of the partition is left on any disk."""
        places = [Path(one) / f"{topic}-0" for one in self.paths]
        futures = [one for path in self.paths for one in Path(path).glob(f"{topic}-0.*-future")]
        return [one for one in places if one.exists()] == [Path(path) / f"{topic}-0"] and (
            not futures
        )


def set_rate(broker: OneBroker, rate: int | None) -> None:
    """The throttle of moves, as Kafka's tool sets it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    operation: Any = "SET" if rate is not None else "DELETE"
    from confluent_kafka.admin import AlterConfigOpType

    entry = ConfigEntry(RATE, str(rate or ""), incremental_operation=AlterConfigOpType[operation])
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def fill(broker: OneBroker, topic: str, size_bytes: int) -> None:
    dice = random.Random(5)
    with broker.wire() as wire:
        for number in range(size_bytes // 50_000):
            produce(wire, topic, noise(dice, str(number), 50_000))


def wait_for_more(loads: Sequence[Load]) -> None:
    goals = [len(load.acknowledged) + 100 for load in loads]
    wait_for(
        lambda: all(len(one.acknowledged) >= goal for one, goal in zip(loads, goals, strict=True)),
        "the producers get no acknowledgements",
    )


@pytest.mark.feature("AD93")
@pytest.mark.parametrize("flush", ["os", "group"])
def test_a_replica_moves_under_load_and_kill_9_in_between_loses_nothing(
    broker: OneBroker, flush: str
) -> None:
    topic = broker.create(f"moved-{flush}", flush=flush, segment_bytes=1_100_000)
    fill(broker, topic, FIRST_BYTES)
    directories = Directories(broker)
    source = directories.home(topic)
    target = directories.other(source)
    set_rate(broker, STILL)
    retrying = {"enable_idempotence": True, "message_timeout_ms": 300_000}
    with under_load(broker, topic, 1, **retrying) as loads:
        wait_for_more(loads)
        assert directories.move(target, topic) is ErrorCode.NONE
        is_future, lag = directories.logs(topic)[target]
        assert is_future
        assert lag > 0
        wait_for_more(loads)
        broker.kill_broker()
        broker.restart_with_same_keys()
        wait_for_more(loads)
        assert directories.home(topic) == source
        assert directories.logs(topic)[target][0], "it goes on by itself"
        set_rate(broker, None)
        wait_for(lambda: directories.home(topic) == target, broker.logs_tail)
        wait_for_more(loads)
        wait_for(lambda: directories.is_only_in(target, topic), "the old log stays")
        broker.kill_broker()
        broker.restart_with_same_keys()
        wait_for_more(loads)
    assert directories.home(topic) == target
    with broker.wire() as wire:
        stored = values_of(read_log(wire, topic))
    assert len(stored) == len(set(stored))
    for load in loads:
        assert not load.failed
        assert {(at, value) for (at, _), value in load.acknowledged.items()} == load.sent
        for (_, offset), value in load.acknowledged.items():
            assert stored[offset] == value


@pytest.mark.feature("AD93")
def test_another_target_replaces_the_first_and_the_present_one_cancels(broker: OneBroker) -> None:
    topic = broker.create("undecided")
    fill(broker, topic, FIRST_BYTES)
    directories = Directories(broker)
    source = directories.home(topic)
    target = directories.other(source)
    set_rate(broker, STILL)
    assert directories.move(target, topic) is ErrorCode.NONE
    assert directories.move(target, topic) is ErrorCode.NONE
    assert directories.move(source, topic) is ErrorCode.NONE
    assert directories.logs(topic) == {source: (False, 0)}
    assert directories.is_only_in(source, topic)
    set_rate(broker, None)


@pytest.mark.feature("AD93")
def test_a_directory_chosen_before_the_topic_is_created_gets_it(broker: OneBroker) -> None:
    directories = Directories(broker)
    for number, path in enumerate(directories.paths):
        topic = f"chosen-{number}"
        assert directories.move(path, topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.create(topic)
        wait_for(lambda topic=topic: directories.logs(topic), "no log is created")  # type: ignore[misc]
        assert directories.home(topic) == path
    assert directories.move("/nowhere", "chosen-0") is ErrorCode.LOG_DIR_NOT_FOUND


@pytest.mark.feature("AD94")
def test_the_command_line_moves_replicas(broker: OneBroker, tmp_path: Path) -> None:
    cli, topic = Cli(broker), broker.create("ordered")
    fill(broker, topic, 100_000)
    directories = Directories(broker)
    source = directories.home(topic)
    target = directories.other(source)
    done = cli.run("cluster", "move-log-dir", "1", target, f"{topic}:0", "--wait", *cli.kafka)
    assert done.returncode == ExitCode.OK, done.stderr
    assert directories.home(topic) == target
    refused = cli.run("cluster", "move-log-dir", "1", "/nowhere", f"{topic}:0", *cli.kafka)
    assert refused.returncode == ExitCode.FAILED
    assert b"LOG_DIR_NOT_FOUND" in refused.stderr
    entry = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [source]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    applied = cli.run("cluster", "reassign", "apply", str(plan), *cli.kafka)
    assert applied.returncode == ExitCode.OK, applied.stderr
    wait_for(lambda: directories.home(topic) == source, broker.logs_tail)
