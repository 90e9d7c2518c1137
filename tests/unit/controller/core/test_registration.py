import pytest
from controller.core.inputs import RegisterBroker, Request
from controller.core.registration import decide_registration, has_kept_its_disks
from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import BrokerImage
from unit.controller.worlds import NEVER, a_broker, a_cluster, a_topic, applied, listing

DISKS = (b"d" * 16,)
KNOWN = a_broker(1, boot_id="boot-1", log_dir_ids=DISKS, fenced=True)


def asked(broker: BrokerImage, *, clean: bool = False, previous: int = -1) -> RegisterBroker:
    return RegisterBroker(Request(1, NEVER), broker, "tide", listing(9, broker), clean, previous)


def again(**changes: object) -> BrokerImage:
    whole = {"boot_id": "boot-1", "log_dir_ids": DISKS, **changes}
    return a_broker(1, epoch=200, **whole)  # type: ignore[arg-type]


def test_kill_9_keeps_the_page_cache() -> None:
    assert has_kept_its_disks(KNOWN, asked(again()))


@pytest.mark.feature("Y09")
def test_another_boot_keeps_only_what_was_stopped_in_order() -> None:
    other = again(boot_id="boot-2")
    assert not has_kept_its_disks(KNOWN, asked(other))
    assert not has_kept_its_disks(KNOWN, asked(other, clean=True, previous=7))
    assert has_kept_its_disks(KNOWN, asked(other, clean=True, previous=KNOWN.broker_epoch))


@pytest.mark.feature("Y09")
def test_another_disk_has_nothing() -> None:
    assert not has_kept_its_disks(KNOWN, asked(again(log_dir_ids=(b"e" * 16,))))


@pytest.mark.feature("Y09")
def test_who_lost_its_disk_is_out_of_every_isr_before_it_counts_as_alive() -> None:
    cluster = a_cluster(a_topic("a", (1, 2), (2, 1), (1,)), brokers=(KNOWN, a_broker(2)))
    broker = again(boot_id="boot-2")
    change, _ = decide_registration(cluster, asked(broker), listing(9, broker))
    applied(cluster, change)
    first, second, alone = cluster.image.topics["a"].partitions
    assert (first.leader, first.isr) == (NO_BROKER, (2,))
    assert (second.leader, second.isr) == (2, (2,))
    assert (alone.leader, alone.isr, alone.leader_epoch) == (1, (1,), 1)
