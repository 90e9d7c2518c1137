"""What happens to a cluster. Two numbers choose a broker, a partition, or something else of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from controller.core.inputs import (
    AlterConfigs,
    AlterPartitions,
    AlterReassignments,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ControlledShutdown,
    ElectLeaders,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    IsrChange,
    IsrMember,
    LiveBrokersChanged,
    Move,
    RegisterBroker,
    ReportReplicas,
    Tick,
    UnsoundReplica,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs
from tidemark.model.metadata import BrokerImage, PartitionImage, TopicImage
from unit.controller.lives import LEASE_MS
from unit.controller.promises import ALWAYS, BROKERS, TOPIC, World, partitions_of
from unit.controller.worlds import a_broker

Happening = Callable[[World, int, int], None]
_TARGETS: Final = ((1, 2, 3), (4, 2, 3), (1, 4), (4,), (2, 1), (3, 4, 1), None, None)


def _next(world: World) -> bytes:
    world.count += 10
    return world.count.to_bytes(16, "big")


def a_process(world: World, broker_id: BrokerId, **changes: Any) -> BrokerImage:
    """Return another process of a broker, with its disks if it has them still."""
    identity, last = _next(world), world.image.brokers.get(broker_id)
    has_disks = last is not None and broker_id not in world.model.broken
    made = replace(
        a_broker(broker_id, epoch=world.count),
        incarnation_id=identity,
        log_dir_ids=last.log_dir_ids if last is not None and has_disks else (identity,),
        boot_id="boot" if last is None else last.boot_id,
    )
    return replace(made, **changes)


def joins(world: World, broker: BrokerImage) -> None:
    """Make the live znode and register. A process that is refused ends."""
    world.live[broker.broker_id] = broker
    world.tree.zxid += 1
    reply = world.ask(lambda header: RegisterBroker(header, broker, "", world.listing()))
    if reply.error is ErrorCode.NONE:
        world.model.broken.discard(broker.broker_id)
        world.model.views.pop(broker.incarnation_id, None)
        world.step(FeedRegained(broker.broker_epoch))
        return
    del world.live[broker.broker_id]
    world.tree.zxid += 1
    world.step(LiveBrokersChanged(world.listing()))


def _ends(world: World, broker_id: BrokerId) -> None:
    last = world.image.brokers[broker_id]
    world.model.lease_until[last.incarnation_id] = 0
    world.step(FeedLost(last.broker_epoch))


def restarts(world: World, one: int, two: int) -> None:
    """A process ends, and the next one registers before it is missed."""
    broker_id = BROKERS[one % len(BROKERS)]
    _ends(world, broker_id)
    joins(world, a_process(world, broker_id))


def loses_its_disk(world: World, one: int, two: int) -> None:
    """A broker returns with an empty disk, or without its page cache. One at a time."""
    broker_id = BROKERS[one % len(BROKERS)]
    if world.model.broken - {broker_id}:
        return
    _ends(world, broker_id)
    world.model.broken.add(broker_id)
    for number in tuple(world.model.whole):
        world.model.lose(number, broker_id)
    world.lose(broker_id)
    if two % 2:
        passes(world, 3, 0)
    boot = {
        "boot_id": _next(world).hex(),
        "log_dir_ids": world.image.brokers[broker_id].log_dir_ids,
    }
    joins(world, a_process(world, broker_id, **boot if two % 3 else {}))


def loses_its_session(world: World, one: int, two: int) -> None:
    """A broker loses its session, and goes on."""
    world.tree.zxid += 1
    world.lose(BROKERS[one % len(BROKERS)])


def registers_again(world: World, one: int, two: int) -> None:
    """The same process has another session."""
    last = world.image.brokers[BROKERS[one % len(BROKERS)]]
    has_ended = world.model.lease_until.get(last.incarnation_id) == 0
    if last.broker_id in world.live or last.broker_id in world.model.broken or has_ended:
        return
    _next(world)
    epoch = BrokerEpoch(world.count + last.broker_id)
    joins(world, replace(last, broker_epoch=epoch, fenced=False, shutting_down=False))


def _registered(world: World, broker_id: int) -> BrokerImage | None:
    live = world.live.get(BrokerId(broker_id))
    shown = world.image.brokers.get(BrokerId(broker_id))
    same = live is not None and shown is not None and live.broker_epoch == shown.broker_epoch
    return shown if same else None


def acknowledges(world: World, one: int, two: int) -> None:
    """A broker acts on the feed. Its lease begins once it has seen its registration."""
    broker = _registered(world, BROKERS[one % len(BROKERS)])
    if broker is not None:
        world.model.views[broker.incarnation_id] = world.image
        world.model.lease_until[broker.incarnation_id] = ALWAYS
        world.step(FeedAcknowledged(broker.broker_epoch, world.image.position))


def passes(world: World, one: int, two: int) -> None:
    """Time passes, a lease at most."""
    world.now = InstantMs(world.now + LEASE_MS * (1 + one % 4) // 4)
    world.step(Tick())


def _a_partition(world: World, choice: int) -> tuple[int, PartitionImage, TopicImage]:
    every = list(partitions_of(world.image))
    return every[choice % len(every)]


def proposes(world: World, one: int, two: int) -> None:
    """The leader of a partition adds a replica to the ISR, or removes one."""
    _, state, topic = _a_partition(world, one)
    leader, brokers = _registered(world, state.leader), world.image.brokers
    other = state.replicas[two % len(state.replicas)]
    if leader is None or other == state.leader or other in world.model.broken:
        return
    kept = tuple(member for member in state.isr if member != other)
    isr = kept if other in state.isr else (*kept, other)
    members = tuple(IsrMember(member, brokers[member].broker_epoch) for member in isr)
    at = (topic.topic_id, state.partition, state.leader_epoch, state.partition_epoch)
    changes, asker = (IsrChange(*at, members),), (leader.broker_id, leader.broker_epoch)
    world.ask(lambda header: AlterPartitions(header, *asker, changes))


def reports(world: World, one: int, two: int) -> None:
    """The directory of a replica fails."""
    number, state, topic = _a_partition(world, one)
    broker = _registered(world, state.replicas[two % len(state.replicas)])
    if broker is None or world.model.broken:
        return
    world.model.lose(number, broker.broker_id)
    world.model.failed.add((broker.incarnation_id, number))
    lost = UnsoundReplica(topic.topic_id, number, state.leader_epoch, offline=True)
    asker = (broker.broker_id, broker.broker_epoch)
    world.ask(lambda header: ReportReplicas(header, *asker, (lost,)))


def moves(world: World, one: int, two: int) -> None:
    """A partition moves, or its move is cancelled."""
    number, _, _ = _a_partition(world, one)
    target = _TARGETS[two % len(_TARGETS)]
    replicas = None if target is None else tuple(map(BrokerId, target))
    move = Move(TOPIC, number, replicas)
    world.ask(lambda header: AlterReassignments(header, (move,), True))


def configures(world: World, one: int, two: int) -> None:
    """The topic has another minimum, or all topics have."""
    value = ConfigChange("min.insync.replicas", ConfigOperation.SET, str(1 + one % 3))
    resource = ConfigResource(2, TOPIC, (value,)) if two % 2 else ConfigResource(4, "", (value,))
    world.ask(lambda header: AlterConfigs(header, (resource,)))


def stops(world: World, one: int, two: int) -> None:
    """A broker hands over."""
    broker = _registered(world, BROKERS[one % len(BROKERS)])
    if broker is not None:
        asker = (broker.broker_id, broker.broker_epoch)
        world.ask(lambda header: ControlledShutdown(header, *asker))


def elects(world: World, one: int, two: int) -> None:
    """Preferred leaders are requested, or unclean elections."""
    world.ask(lambda header: ElectLeaders(header, one % 2 == 1, None))


def is_cut(world: World, one: int, two: int) -> None:
    """The controller will die, after some transactions."""
    world.session.left = 1 + one % 4


HAPPENINGS: Final[tuple[Happening, ...]] = (
    restarts,
    loses_its_disk,
    loses_its_session,
    registers_again,
    acknowledges,
    acknowledges,
    passes,
    proposes,
    proposes,
    proposes,
    reports,
    moves,
    moves,
    configures,
    stops,
    elects,
    is_cut,
)
