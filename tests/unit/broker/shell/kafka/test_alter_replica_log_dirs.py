"""AlterReplicaLogDirs, and the future log that DescribeLogDirs then shows."""

from pathlib import Path
from typing import Any

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.storage.disk import DiskError, DiskFullError
from unit.broker.shell.broker_worlds import topic
from unit.broker.shell.kafka.conftest import AskOf
from unit.broker.shell.upkeep.test_moving import Moves


def moved(path: str, *names: str) -> dict[str, object]:
    topics = [{"name": name, "partitions": [0]} for name in names]
    return {"dirs": [{"path": path, "topics": topics}]}


@pytest.mark.feature("AD92")
@pytest.mark.parametrize("version", [1, 2])
def test_each_partition_has_its_answer(ask_of: AskOf, version: int) -> None:
    world = Moves()
    world.show(topic())
    target = world.path_of(world.future)
    asked = moved(target, "orders", "other")
    answer = ask_of(world.parts)(ApiKey.ALTER_REPLICA_LOG_DIRS, asked, version)
    assert {
        one.topic_name: [(each.partition_index, each.error_code) for each in one.partitions]
        for one in answer.results
    } == {
        "orders": [(0, ErrorCode.NONE)],
        "other": [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }


def described(world: Moves, ask_of: AskOf) -> dict[str, list[tuple[int, int, bool]]]:
    """Partition, lag and kind of each log, by the letter of its directory."""
    answer: Any = ask_of(world.parts)(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    return {
        Path(each.log_dir).name: [
            (one.partition_index, one.offset_lag, one.is_future_key)
            for name in each.topics
            for one in name.partitions
        ]
        for each in answer.results
    }


@pytest.mark.feature("AD92")
def test_a_future_log_is_described_with_its_lag(ask_of: AskOf) -> None:
    world = Moves()
    world.show(topic())
    for _ in range(3):
        world.append()
    target = world.path_of(world.future)
    ask_of(world.parts)(ApiKey.ALTER_REPLICA_LOG_DIRS, moved(target, "orders"))
    found = described(world, ask_of)
    assert found.pop(target[1:]) == [(0, 3, True)]
    assert list(found.values()) == [[(0, 0, False)]]


@pytest.mark.parametrize(
    ("failure", "logs"),
    [(DiskFullError("a", "full"), [(0, 0, False)]), (DiskError("a", "broken"), [])],
)
def test_a_directory_that_is_full_shows_what_takes_its_space(
    ask_of: AskOf, failure: DiskError, logs: list[tuple[int, int, bool]]
) -> None:
    """It is read from as before, and somebody has to choose what goes."""
    world = Moves()
    world.show(topic())
    world.append()
    path = world.path_of(world.hosted().manager)
    world.hosted().manager.fence(failure)
    assert described(world, ask_of)[path[1:]] == logs
    answer: Any = ask_of(world.parts)(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    states = {one.log_dir: one.error_code for one in answer.results}
    assert states.pop(path) == ErrorCode.KAFKA_STORAGE_ERROR
    assert set(states.values()) == {ErrorCode.NONE}
