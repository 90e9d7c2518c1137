from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock
from tidemark.client.config import ConsumerConfig
from tidemark.client.consumer.group_types import (
    GroupMetadata,
    OffsetAndMetadata,
    Offsets,
    as_offsets,
)
from tidemark.client.consumer.offset_storage import (
    Check,
    DualOffsets,
    ZooKeeperOffsets,
    commit_fields,
    fetch_fields,
    furthest,
    never_refuses,
    storage_for,
)
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientConfigError, CommitFailedError
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import run, run_with_sockets

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
SOON = Deadline(1_000, 1_000)


class MemoryOffsets:
    """An OffsetStorage; refuses when told to."""

    def __init__(self, **offsets: int) -> None:
        self.offsets = {
            TopicPartition("t", int(number[1:])): OffsetAndMetadata(offset)
            for number, offset in offsets.items()
        }
        self.refuses = False

    async def commit(
        self, offsets: Offsets, deadline: Deadline, check: Check = never_refuses
    ) -> None:
        check()
        if self.refuses:
            raise CommitFailedError(ErrorCode.STALE_MEMBER_EPOCH, "no")
        self.offsets |= offsets

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: self.offsets[each] for each in partitions if each in self.offsets}

    async def close(self) -> None:
        pass


@pytest.mark.feature("F02")
def test_a_dual_commit_goes_to_both() -> None:
    ours, zookeeper = MemoryOffsets(), MemoryOffsets()
    run(DualOffsets(ours, zookeeper).commit({ZERO: OffsetAndMetadata(7)}, SOON))
    assert ours.offsets == zookeeper.offsets == {ZERO: OffsetAndMetadata(7)}


@pytest.mark.feature("F02")
@pytest.mark.parametrize("refuser", [0, 1])
def test_a_dual_commit_succeeds_only_when_both_did(refuser: int) -> None:
    storages = (MemoryOffsets(), MemoryOffsets())
    storages[refuser].refuses = True
    with pytest.raises(CommitFailedError):
        run(DualOffsets(*storages).commit({ZERO: OffsetAndMetadata(7)}, SOON))
    assert not storages[1].offsets, "a fenced member changes ZooKeeper neither"


@pytest.mark.feature("F03")
def test_while_a_group_migrates_nothing_processed_is_read_again() -> None:
    ours, zookeeper = MemoryOffsets(p0=100), MemoryOffsets(p0=200, p1=5)
    found = run(DualOffsets(ours, zookeeper).fetch([ZERO, ONE], SOON))
    assert {partition: each.offset for partition, each in found.items()} == {ZERO: 200, ONE: 5}


OFFSETS = st.dictionaries(
    st.sampled_from([ZERO, ONE]), st.builds(OffsetAndMetadata, st.integers(0, 3), st.just("m"))
)


@given(OFFSETS, OFFSETS)
def test_the_furthest_is_in_one_of_both_and_behind_neither(
    ours: dict[TopicPartition, OffsetAndMetadata], others: dict[TopicPartition, OffsetAndMetadata]
) -> None:
    found = furthest(ours, others)
    assert found.keys() == ours.keys() | others.keys()
    for partition, each in found.items():
        known = [one[partition].offset for one in (ours, others) if partition in one]
        assert each.offset == max(known)


class Nobody:
    joins = 0
    is_catching_up = False

    def metadata(self) -> GroupMetadata:
        return GroupMetadata("g")


@pytest.mark.feature("F01")
@pytest.mark.parametrize(
    ("storage", "dual", "kind"),
    [
        ("tidemark", False, "CoordinatorOffsets"),
        ("kafka", False, "CoordinatorOffsets"),
        ("ads", False, "CoordinatorOffsets"),
        ("ads", True, "DualOffsets"),
        ("zookeeper", False, "ZooKeeperOffsets"),
        ("zookeeper", True, "DualOffsets"),
    ],
)
def test_the_settings_choose_the_storage(storage: str, dual: bool, kind: str) -> None:
    config = ConsumerConfig(
        offsets_storage=storage,  # type: ignore[arg-type]
        dual_commit_enabled=dual,
        zookeeper_connect="zk:2181",
    )
    coordinator = type("Coordinator", (), {"key": "g"})()
    chosen = storage_for(config, coordinator, Nobody(), ManualClock())
    assert type(chosen).__name__ == kind


@pytest.mark.parametrize(
    "settings",
    [
        {"offsets_storage": "zookeeper"},
        {"dual_commit_enabled": True},
        {"offsets_storage": "elsewhere"},
        {"offsets_storage": "zookeeper", "zookeeper_connect": "zk:1", "group_id": "a/b"},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ClientConfigError):
        ConsumerConfig(**settings)  # type: ignore[arg-type]


def test_a_zookeeper_that_is_not_there_is_named_in_time() -> None:
    config = ConsumerConfig(retry_backoff_ms=1, retry_backoff_max_ms=1)
    storage = ZooKeeperOffsets("127.0.0.1:1", "g", config, ManualClock())
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        run_with_sockets(storage.fetch([ZERO], Deadline(50, 50)))


def test_requests_say_who_asks() -> None:
    who = GroupMetadata("g", 3, "m", "instance")
    mixed: dict[TopicPartition, int | OffsetAndMetadata] = {
        ZERO: 4,
        ONE: OffsetAndMetadata(5, "note"),
    }
    fields = commit_fields(who, as_offsets(mixed))
    assert fields["generation_id_or_member_epoch"] == 3
    assert fields["topics"][0]["partitions"][1]["committed_metadata"] == "note"
    stranger = fetch_fields(who._replace(member_epoch=0), {"t": [0]}, stable=True)
    assert stranger["groups"][0]["member_id"] is None
    assert stranger["require_stable"]
    with pytest.raises(ValueError, match="negative"):
        as_offsets({ZERO: -1})
