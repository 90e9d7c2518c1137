"""What a broker does with replicas whose disk failed or lost bytes: it reports them, gives up what
counts nowhere, and makes nothing anew that may still be somewhere.
"""

import asyncio
import threading
from dataclasses import replace
from typing import cast

import pytest
from broker.core.partition import Role
from broker.shell.cluster.held_logs import held_logs
from broker.shell.start import directory_id
from broker.storage.disk_failures import DiskFailures
from broker.storage.producer_replay import ProducerReplay
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import TopicImage
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.service import ServiceError
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_worlds import World, maintenance, reports_of, topic
from unit.broker.shell.partitions.test_hosting_roles import Followed
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated
from virtual_time import LoopClock, run_virtual
from waiting import until

EIO = DiskError("orders-0/0.log", "Input/output error")


class Controller:
    """Takes reports; before ``answers_after`` of them it cannot be reached."""

    def __init__(self, answers_after: int = 0) -> None:
        self.asked: list[pb.ReportReplicasRequest] = []
        self._answers_after = answers_after
        self.reached = asyncio.Event()

    async def report_replicas(
        self, request: pb.ReportReplicasRequest, _: float
    ) -> pb.ReportReplicasResponse:
        self.asked.append(request)
        if len(self.asked) <= self._answers_after:
            raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "nobody is active")
        self.reached.set()
        return pb.ReportReplicasResponse()


def led(controller: Controller) -> LeaderWorld:
    world = LeaderWorld()
    world.parts.cluster = replace(
        world.parts.cluster, controller=cast("ControllerClient", controller)
    )
    world.parts.cluster.registration.broker_epoch = 10
    return world


async def until_reported(world: World, controller: Controller) -> None:
    def has_come() -> bool:
        world.clock.advance(20)
        return controller.reached.is_set()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reports_of(world).run())
        await until(has_come)
        running.cancel()


@pytest.mark.feature("Y09")
def test_a_failed_directory_is_reported_until_the_controller_answers() -> None:
    async def story() -> None:
        controller = Controller(answers_after=2)
        world = led(controller)
        world.parts.partitions.disks.log_managers[0].fence(EIO)  # by storage alone
        await until_reported(world, controller)
        assert world.hosted().partition.role is Role.FAILED
        (one,) = controller.asked[-1].replicas
        assert (one.partition, one.leader_epoch, one.offline) == (0, 0, True)
        assert "Input/output error" in one.reason

    run_virtual(story())


@pytest.mark.feature("Y09")
def test_damage_is_reported_and_the_leader_leads_on_meanwhile() -> None:
    async def story() -> None:
        controller = Controller()
        world = led(controller)
        world.parts.partitions.disks.found_damage(
            world.hosted(), "a batch does not match its CRC", 0
        )
        await until_reported(world, controller)
        assert world.hosted().partition.role is Role.LEADER
        (one,) = controller.asked[0].replicas
        assert (one.offline, one.reason) == (False, "a batch does not match its CRC")

    run_virtual(story())


@pytest.mark.feature("Y09")
def test_a_follower_asking_twice_makes_the_leader_look_at_its_batch() -> None:
    async def story() -> None:
        controller = Controller()
        world = led(controller)
        for _ in range(3):
            world.append()
        hosted = world.hosted()
        view = hosted.log.segments()[-1]
        world.disks[0].flip_bit(view.path, view.size_bytes - 1)
        assert world.fetch(2, 0).read is not None
        assert controller.asked == []
        world.fetch(2, 0)
        await until_reported(world, controller)
        assert hosted.log.health.damage_at == 2

    run_virtual(story())


def test_what_is_reported_fetches_no_longer_and_is_repaired_once_it_counts_nowhere() -> None:
    followed = Followed()
    world = World(following=followed)
    world.show(replicated(partition()))
    for _ in range(5):
        world.append()
    hosted = world.hosted()
    world.parts.partitions.disks.found_damage(hosted, "a batch does not match its CRC", 3)
    world.hosting.note_unsound(hosted)
    world.change(topics_changed=(replicated(partition(leader=2, epoch=1, version=1)),))
    assert hosted.partition.log_end == 5, "the ISR still counts on it"
    world.change(topics_changed=(replicated(partition(leader=2, epoch=2, version=2, isr=(2, 3))),))
    assert (hosted.partition.log_end, hosted.log.damage, hosted.unsound_since) == (3, None, None)
    assert followed.heard == [("LEADER", 1), ("removed", 1), ("removed", 2), ("FOLLOWER", 2)]


def test_a_long_walk_before_a_repair_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log has gigabytes behind the last snapshot that a cut can use."""
    monkeypatch.setattr("broker.storage.producer_replay.WALKED_AT_ONCE_BYTES", 0)
    walks, run = list[str](), ProducerReplay.run

    def noted(replay: ProducerReplay) -> None:
        walks.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        run(replay)

    monkeypatch.setattr(ProducerReplay, "run", noted)
    replays = list[object]()
    monkeypatch.setattr(
        "broker.storage.producer_history.replay_producers", lambda *_: replays.append(None)
    )
    world = World(following=Followed())
    world.show(replicated(partition()))
    for _ in range(5):
        world.append()
    hosted = world.hosted()
    world.parts.partitions.disks.found_damage(hosted, "a batch does not match its CRC", 3)
    world.hosting.note_unsound(hosted)

    async def story() -> None:
        gone = replicated(partition(leader=2, epoch=2, version=1, isr=(2, 3)))
        world.change(topics_changed=(gone,))
        world.change(
            topics_changed=(replicated(partition(leader=3, epoch=3, version=2, isr=(2, 3))),)
        )
        assert hosted.log.damage is not None, "the loop does not wait for the walk"
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(world.hosting.repair())
            await until(lambda: hosted.log.damage is None)
            running.cancel()

    asyncio.run(story())
    assert (hosted.partition.log_end, hosted.unsound_since) == (3, None)
    assert (walks, replays) == (["thread"], [])


@pytest.mark.feature("Y09")
def test_a_registration_names_every_log_by_what_it_is_worth() -> None:
    world = World(MemDisk(), MemDisk())
    world.show(topic(partitions=4))
    first, second = world.parts.partitions.disks.log_managers
    world.hosted(partition=1).log.health.report("flipped", 0)
    world.hosted(partition=3).log.health.end_lost = True
    first.missing.add(world.hosted(partition=3).topic_partition._replace(partition=7))
    (held,) = (told := held_logs((first, second))).topics
    assert (list(held.sound), list(held.damaged), list(held.lost)) == ([0, 2], [1], [3])
    assert [(one.topic, list(one.partitions)) for one in told.missing] == [("orders", [7])]
    assert held.log_dir_id == directory_id(first.stamp.directory_id)
    first.fence(EIO)
    (held,) = held_logs((first, second)).topics
    assert sorted(held.lost) == sorted({3, *(key.partition for key in first.logs)})


def test_nothing_is_made_anew_while_a_directory_is_out_of_service() -> None:
    world = World(MemDisk(), MemDisk())
    world.parts.partitions.disks.log_managers[0].fence(EIO)
    world.show(replicated(partition(leader=2, epoch=3, version=3, isr=(2, 3))))
    assert world.table.by_name == {}, "it may be in the directory that failed"
    world.change(topics_changed=(topic("fresh", number=2),))
    assert world.hosted("fresh").manager is world.parts.partitions.disks.log_managers[1]


def moved() -> TopicImage:
    """Two other brokers are the ISR now."""
    return replicated(partition(leader=2, epoch=1, version=1, isr=(2, 3)))


def test_what_storage_met_a_moment_ago_is_reported_before_a_broker_ends() -> None:
    async def story() -> None:
        world = led(Controller())
        world.parts.partitions.disks.log_managers[0].fence(EIO)  # by storage alone
        reports = reports_of(world)
        assert not await reports.settle(0), "the image still counts on it"
        world.change(topics_changed=(moved(),))
        assert await reports.settle(0)

    run_virtual(story())


def test_a_broker_that_is_not_registered_has_told_nobody() -> None:
    async def story() -> None:
        world = led(Controller())
        world.parts.cluster.registration.broker_epoch = -1
        world.parts.partitions.disks.log_managers[0].fence(EIO)
        reports = reports_of(world)
        assert not await reports.settle(0)
        world.change(topics_changed=(moved(),))
        assert not await reports.settle(0)
        world.parts.cluster.registration.broker_epoch = 10
        assert await reports.settle(0)

    run_virtual(story())


class Ending:
    """A broker whose only directory fails while no controller answers."""

    def __init__(self, *, takes_note: bool) -> None:
        self.world = led(Controller(answers_after=1_000_000))
        self.world.parts.facts = replace(self.world.parts.facts, clock=LoopClock())
        self.world.disks[0].writes_fail = not takes_note
        self.world.parts.partitions.disks.log_managers[0].fence(EIO)
        healing = maintenance(self.world)._heal()
        self._task = asyncio.get_running_loop().create_task(healing)

    async def ends_within(self, seconds: float) -> bool:
        await asyncio.wait((self._task,), timeout=seconds)
        return self._task.done() and isinstance(self._task.exception(), ServiceError)


@pytest.mark.feature("Y09")
def test_a_broker_without_a_usable_directory_ends_though_no_controller_answers() -> None:
    async def story() -> None:
        assert await Ending(takes_note=True).ends_within(60)

    run_virtual(story())


@pytest.mark.feature("Y09")
def test_a_failure_that_no_disk_takes_note_of_is_reported_before_the_broker_ends() -> None:
    async def story() -> None:
        ending = Ending(takes_note=False)
        assert not await ending.ends_within(3_600)
        ending.world.change(topics_changed=(moved(),))
        assert await ending.ends_within(60)

    run_virtual(story())


@pytest.mark.feature("Y09")
def test_a_failure_is_noted_as_soon_as_a_disk_takes_it() -> None:
    async def story() -> None:
        ending = Ending(takes_note=False)
        assert not await ending.ends_within(3_600)
        ending.world.disks[0].writes_fail = False
        assert await ending.ends_within(60)
        assert DiskFailures(ending.world.disks).reason("d") == str(EIO)

    run_virtual(story())
