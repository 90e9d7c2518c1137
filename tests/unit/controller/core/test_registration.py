from dataclasses import replace

import pytest
from controller.core.cluster import Cluster, new_partition
from controller.core.election_rules import demote
from controller.core.inputs import HeldLogs, RegisterBroker, RequestHeader
from controller.core.isr import without_replica
from controller.core.registration import decide_registration, has_kept_its_disks
from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import BrokerImage, PartitionImage
from unit.controller.worlds import NEVER, a_broker, a_cluster, a_topic, applied, listing, topic_id

DISKS = (b"d" * 16,)
KNOWN = a_broker(1, boot_id="boot-1", log_dir_ids=DISKS, fenced=True)


def registration_request(
    broker: BrokerImage, *, clean: bool = False, previous: int = -1
) -> RegisterBroker:
    return RegisterBroker(
        RequestHeader(1, NEVER), broker, "tide", listing(9, broker), clean, previous
    )


def again(**changes: object) -> BrokerImage:
    whole = {"boot_id": "boot-1", "log_dir_ids": DISKS, **changes}
    return a_broker(1, epoch=200, **whole)  # type: ignore[arg-type]


def test_kill_9_keeps_the_page_cache() -> None:
    assert has_kept_its_disks(KNOWN, registration_request(again()))


@pytest.mark.feature("Y09")
def test_another_boot_keeps_logs_only_after_a_clean_stop() -> None:
    other = again(boot_id="boot-2")
    assert not has_kept_its_disks(KNOWN, registration_request(other))
    assert not has_kept_its_disks(KNOWN, registration_request(other, clean=True, previous=7))
    assert has_kept_its_disks(
        KNOWN, registration_request(other, clean=True, previous=KNOWN.broker_epoch)
    )


@pytest.mark.feature("Y09")
def test_another_disk_has_nothing() -> None:
    assert not has_kept_its_disks(KNOWN, registration_request(again(log_dir_ids=(b"e" * 16,))))


@pytest.mark.feature("Y09")
def test_a_broker_that_lost_its_disk_leaves_every_isr_before_it_counts_as_alive() -> None:
    cluster = a_cluster(a_topic("a", (1, 2), (2, 1), (1,)), brokers=(KNOWN, a_broker(2)))
    broker = again(boot_id="boot-2")
    change, _ = decide_registration(cluster, registration_request(broker), listing(9, broker))
    applied(cluster, change)
    first, second, alone = cluster.image.topics["a"].partitions
    assert (first.leader, first.isr) == (NO_BROKER, (2,))
    assert (second.leader, second.isr) == (2, (2,))
    assert (alone.leader, alone.isr, alone.leader_epoch) == (1, (1,), 1)


# -- logs that a broker reports


ID = topic_id("a")
SOUND = HeldLogs(sound=frozenset({(ID, 0)}))
DAMAGED = HeldLogs(damaged=frozenset({(ID, 0)}))
LOST = HeldLogs(lost=frozenset({(ID, 0)}))


def used(*replicas: int, **changes: object) -> Cluster:
    """A partition whose ISR has changed since its creation, and broker 1, which is down."""
    topic = a_topic("a", replicas, configs={"min.insync.replicas": "2"})
    partition = replace(topic.partitions[0], partition_epoch=5, **changes)  # type: ignore[arg-type]
    brokers = (KNOWN, a_broker(2), a_broker(3))
    return a_cluster(replace(topic, partitions=(partition,)), brokers=brokers)


def registered(cluster: Cluster, held: HeldLogs, **changes: object) -> PartitionImage:
    """The partition after broker 1 came back with these logs."""
    broker = again(**changes)
    request = replace(registration_request(broker), held=held)
    change, _ = decide_registration(cluster, request, listing(9, broker))
    return applied(cluster, change).image.topics["a"].partitions[0]


@pytest.mark.feature("Y09")
@pytest.mark.parametrize("held", [DAMAGED, LOST, HeldLogs()])
def test_a_replica_that_is_not_sound_leaves_the_isr_before_it_may_lead(held: HeldLogs) -> None:
    after = registered(used(1, 2, 3), held)
    assert (after.leader, after.leader_epoch, after.isr) == (NO_BROKER, 1, (2, 3))
    assert after.last_known_leader == 1


@pytest.mark.feature("Y09")
@pytest.mark.parametrize("held", [LOST, HeldLogs()])
def test_a_lost_replica_leaves_the_elr_too(held: HeldLogs) -> None:
    after = registered(used(1, 2, 3, isr=(2,), elr=(1, 3), leader=2), held)
    assert (after.leader, after.isr, after.elr) == (2, (2,), (3,))


def test_a_sound_replica_leads_on_in_the_next_epoch() -> None:
    after = registered(used(1, 2, 3), SOUND)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 1, (1, 2, 3))


@pytest.mark.feature("Y09")
def test_of_two_directories_only_the_logs_of_the_missing_one_are_lost() -> None:
    two = (*DISKS, b"e" * 16)
    brokers = (replace(KNOWN, log_dir_ids=two), a_broker(2))
    cluster = a_cluster(a_topic("a", (1, 2), (1, 2)), brokers=brokers)
    registered(cluster, SOUND)
    kept, gone = cluster.image.topics["a"].partitions
    assert (kept.leader, kept.isr) == (1, (1, 2))
    assert (gone.leader, gone.isr) == (NO_BROKER, (2,))


def test_a_log_that_was_never_made_is_not_lost() -> None:
    cluster = a_cluster(a_topic("a", (1, 2, 3)), brokers=(KNOWN, a_broker(2), a_broker(3)))
    after = registered(cluster, HeldLogs())
    assert (after.leader, after.isr) == (1, (1, 2, 3))


def a_partition_of(*live: int) -> PartitionImage:
    """A new partition of brokers 1 and 2, of which these are live."""
    return new_partition(0, (BrokerId(1), BrokerId(2)), frozenset(map(BrokerId, live)))


def alone(partition: PartitionImage) -> Cluster:
    topic = replace(a_topic("a", (1, 2)), partitions=(partition,))
    return a_cluster(topic, brokers=(KNOWN, a_broker(2)))


def test_a_sole_member_that_never_made_its_log_may_register_again() -> None:
    cluster = alone(a_partition_of(1))
    for epoch, process in ((1, b"one"), (2, b"two"), (3, b"three")):
        after = registered(cluster, HeldLogs(), incarnation_id=process)
        assert (after.leader, after.leader_epoch, after.isr) == (1, epoch, (1,))
    after = registered(cluster, HeldLogs(missing=frozenset({("a", 0)})), incarnation_id=b"four")
    assert (after.leader, after.isr) == (NO_BROKER, ())


def test_a_sole_member_that_never_made_its_log_stays_after_its_lease() -> None:
    after = registered(alone(demote(a_partition_of(1))), HeldLogs())
    assert (after.leader, after.isr) == (NO_BROKER, (1,))


def test_members_that_never_made_their_logs_stay_together() -> None:
    cluster = alone(a_partition_of(1, 2))
    for process, epoch in ((b"one", 300), (b"two", 400)):
        other = replace(registration_request(a_broker(2, epoch=epoch)), held=HeldLogs())
        applied(cluster, decide_registration(cluster, other, other.listing)[0])
        after = registered(cluster, HeldLogs(), incarnation_id=process)
        assert (after.leader, after.isr) == (1, (1, 2))


def test_a_sole_member_of_an_isr_that_changed_has_lost_its_log() -> None:
    smaller = without_replica(a_partition_of(1, 2), BrokerId(2), 1)
    for partition in (smaller, demote(smaller), demote(demote(smaller))):
        assert partition.isr == (1,)
        after = registered(alone(partition), HeldLogs())
        assert (after.leader, after.isr) == (NO_BROKER, ())


def test_a_log_that_a_checkpoint_names_was_made() -> None:
    cluster = a_cluster(a_topic("a", (1, 2, 3)), brokers=(KNOWN, a_broker(2), a_broker(3)))
    after = registered(cluster, HeldLogs(missing=frozenset({("a", 0)})))
    assert (after.leader, after.isr) == (NO_BROKER, (2, 3))


@pytest.mark.feature("Y09")
def test_after_another_boot_nothing_is_sound() -> None:
    assert registered(used(1, 2, 3), SOUND, boot_id="boot-2").isr == (2, 3)


@pytest.mark.feature("Y09")
def test_a_log_on_a_disk_that_was_put_back_is_not_sound() -> None:
    assert registered(used(1, 2, 3), SOUND, log_dir_ids=(b"e" * 16,)).isr == (2, 3)


@pytest.mark.feature("Y09")
@pytest.mark.parametrize(("directory", "isr"), [(DISKS[0], (1, 2, 3)), (b"e" * 16, (2, 3))])
def test_a_log_in_one_of_two_disks_that_was_put_back_is_not_sound(
    directory: bytes, isr: tuple[int, ...]
) -> None:
    held = replace(SOUND, directory_of={(ID, 0): directory})
    assert registered(used(1, 2, 3), held, log_dir_ids=(*DISKS, b"e" * 16)).isr == isr


@pytest.mark.parametrize("held", [DAMAGED, LOST, HeldLogs()])
def test_the_only_replica_keeps_its_place(held: HeldLogs) -> None:
    after = registered(used(1), held)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 1, (1,))


def test_a_damaged_replica_leads_where_no_other_could() -> None:
    after = registered(used(1, 2, 3, isr=(1,)), DAMAGED)
    assert (after.leader, after.isr) == (1, (1,))


def test_a_replica_that_lost_its_end_does_not_lead_by_itself() -> None:
    after = registered(used(1, 2, 3, isr=(1,)), LOST)
    assert (after.leader, after.isr, after.last_known_leader) == (NO_BROKER, (), 1)


def test_a_repeated_registration_counts_its_present_logs() -> None:
    cluster = used(1, 2, 3)
    registered(cluster, SOUND)
    assert (
        decide_registration(
            cluster, replace(registration_request(again()), held=SOUND), listing(9, again())
        )[0]
        is None
    )
    after = registered(cluster, DAMAGED)
    assert (after.leader, after.leader_epoch, after.isr) == (NO_BROKER, 2, (2, 3))
