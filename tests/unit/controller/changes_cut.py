"""Every kind of change that a controller makes, as a script of inputs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from controller.core.cluster import PutPartition, PutTopic
from controller.core.inputs import (
    AcquireShard,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterQuotas,
    AlterReassignments,
    AlterUsers,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ControlledShutdown,
    CoordinatorRef,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    CredentialRef,
    DeleteAcls,
    DeleteTopics,
    ElectLeaders,
    FeedAcknowledged,
    IsrChange,
    IsrMember,
    MorePartitions,
    Move,
    NewCredential,
    QuotaAlteration,
    ReportReplicas,
    Request,
    RequestHeader,
    TopicRef,
    UnregisterBroker,
    UnsoundReplica,
)
from sim.znode_tree import Tree
from tidemark.model.acls import AclFilter, Permission, RawBinding
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.ids import NO_TOPIC_ID, BrokerId
from tidemark.model.metadata import TXN, BrokerImage, InternalTopic, PartitionImage, TopicImage
from tidemark.model.quotas import CONNECTION_CREATION_RATE, DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity
from tidemark.model.scram import ScramCredential, ScramMechanism
from unit.controller.lives import Life, Script, finish
from unit.controller.worlds import NEVER, a_broker, a_coordinator, a_topic, new_topic

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
CLIENT_METRICS: Final = 16
UNASKED: Final = RequestHeader(0, NEVER)
MINIMUM: Final = "min.insync.replicas"
STATE: Final = "__transaction_state"


def disk_of(number: int, generation: int = 0) -> tuple[bytes, ...]:
    """Return the id of a broker's only directory."""
    return (bytes([number, generation]) * 8,)


def broker(number: int, *, start: int = 0, boot: int = 0, disk: int = 0) -> BrokerImage:
    """Return the n-th process of a broker, on a boot of its machine, with a disk."""
    made = a_broker(number, epoch=100 + 10 * start, boot_id=f"boot-{number}-{boot}")
    return replace(made, log_dir_ids=disk_of(number, disk))


def a_store(topics: tuple[TopicImage, ...]) -> Life:
    """Return a store with these topics, four registered brokers and two coordinators."""
    life = Life(Tree())
    life.start()
    for number in (1, 2, 3, 4):
        life.register(broker(number))
    for topic in topics:
        puts = [PutPartition(topic.topic_id, one) for one in topic.partitions]
        finish(life.store.write([*puts, PutTopic(topic)]))
    after = Life(life.tree, life.live.values())
    after.start()
    for number in (1, 2):
        after.join(a_coordinator(number))
    after.settle()
    return after


def some_topics() -> tuple[TopicImage, ...]:
    """Return topics with spread leaders; one is below its minimum and has an ELR."""
    spread = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
    low = a_topic("low", *spread, configs={"min.insync.replicas": "2"})
    partitions = tuple(map(_below_minimum, low.partitions))
    state = a_topic(STATE, *(spread * 2), configs={"min.insync.replicas": "2"})
    return a_topic("a", *spread), a_topic("b", *spread), replace(low, partitions=partitions), state


def _below_minimum(partition: PartitionImage) -> PartitionImage:
    return replace(partition, isr=partition.replicas[:1], elr=partition.replicas[1:2])


def loses_its_disk(life: Life) -> None:
    """Broker 1 registers with an empty disk, after the lease of its last process has expired."""
    life.lose(1)
    life.settle()
    life.register(broker(1, start=2, disk=1))


def loses_power(life: Life) -> None:
    """Broker 1 registers after a restart of its machine."""
    life.register(broker(1, start=3, boot=1))


def is_killed(life: Life) -> None:
    """Broker 1 registers again within its lease: it leads again, in the next epochs."""
    life.register(broker(1, start=1))


def dies(life: Life) -> None:
    """Brokers 1 and 2 are gone; a lease later others lead their partitions."""
    life.lose(1)
    life.lose(2)


def stops(life: Life) -> None:
    """Broker 2 hands over its partitions."""
    epoch = broker(2).broker_epoch
    life.ask(lambda header: ControlledShutdown(header, BrokerId(2), epoch))


def shrinks(life: Life) -> None:
    """Broker 1 proposes ISRs without broker 3, where it leads, and so does each other leader."""
    propose(life, lambda isr: tuple(one for one in isr if one != 3))


def propose(life: Life, change: Callable[[tuple[BrokerId, ...]], tuple[BrokerId, ...]]) -> None:
    """Every leader proposes other ISRs, all of its partitions in one request."""
    for leader in tuple(life.live):
        changes = tuple(
            IsrChange(
                topic.topic_id,
                at.partition,
                at.leader_epoch,
                at.partition_epoch,
                tuple(IsrMember(one, life.image.brokers[one].broker_epoch) for one in isr),
            )
            for topic in life.image.topics.values()
            for at in topic.partitions
            if at.leader == leader and (isr := change(at.isr)) != at.isr and leader in isr
        )
        epoch = life.live[leader].broker_epoch
        request = AlterPartitions(UNASKED, leader, epoch, changes)
        life.ask(partial(_request_with, request))


def _request_with(request: AlterPartitions | AcquireShard, header: RequestHeader) -> Request:
    return replace(request, header=header)


def reports(life: Life) -> None:
    """A directory of broker 1 fails, with a replica of every partition it has."""
    replicas = tuple(
        UnsoundReplica(topic.topic_id, at.partition, at.leader_epoch, offline=True)
        for topic in life.image.topics.values()
        for at in topic.partitions
        if 1 in at.replicas
    )
    if BrokerId(1) not in life.live:
        return  # a script before this one ended it
    epoch = life.live[BrokerId(1)].broker_epoch
    life.ask(lambda header: ReportReplicas(header, BrokerId(1), epoch, replicas))


def creates(life: Life) -> None:
    """Three topics in one request."""
    topics = tuple(new_topic(name, 5, 3) for name in ("x", "y", "z"))
    life.ask(lambda header: CreateTopics(header, topics, dice=3))


def deletes(life: Life) -> None:
    """Two topics in one request, and one of them is made again."""
    refs = (TopicRef("a", NO_TOPIC_ID), TopicRef("b", NO_TOPIC_ID))
    life.ask(lambda header: DeleteTopics(header, refs))


def grows(life: Life) -> None:
    """Two topics get more partitions."""
    more = (MorePartitions("a", 9), MorePartitions("b", 6))
    life.ask(lambda header: CreatePartitions(header, more, dice=3))


def configures_topics(life: Life) -> None:
    """A lower minimum where replicas are eligible, and something else elsewhere."""
    alter(
        life,
        *(
            ConfigResource(TOPIC, name, (_set("min.insync.replicas", "1"),))
            for name in ("low", "a")
        ),
        ConfigResource(TOPIC, "b", (_set("retention.ms", "1"),)),
    )


def configures_all(life: Life) -> None:
    """A minimum for all topics, one for a single broker, and two groups."""
    alter(
        life,
        ConfigResource(BROKER, "", (_set(MINIMUM, "3"),)),
        ConfigResource(TOPIC, "low", (ConfigChange(MINIMUM, ConfigOperation.DELETE),)),
        ConfigResource(BROKER, "1", (_set("max.connections", "9"),)),
        ConfigResource(GROUP, "g", (_set("consumer.session.timeout.ms", "50000"),)),
        ConfigResource(GROUP, "h", (_set("consumer.session.timeout.ms", "50000"),)),
        ConfigResource(CLIENT_METRICS, "s", (_set("metrics", "*"),)),
    )


def permits(life: Life) -> None:
    """Access control lists of three patterns and two users; one of each is removed again."""
    entry = ("User:alice", "*", Operation.READ, Permission.ALLOW)
    bindings = tuple(RawBinding(ResourceType.TOPIC, name, 3, *entry) for name in "abc")
    life.ask(lambda header: CreateAcls(header, bindings))
    life.ask(lambda header: DeleteAcls(header, (AclFilter(name="b"),)))
    credential = ScramCredential(
        ScramMechanism.SCRAM_SHA_256, 4_096, b"s" * 16, b"k" * 32, b"v" * 32
    )
    new = tuple(NewCredential(name, credential) for name in ("alice", "bob"))
    life.ask(lambda header: AlterUsers(header, upsertions=new))
    gone = (CredentialRef("bob", ScramMechanism.SCRAM_SHA_256),)
    life.ask(lambda header: AlterUsers(header, deletions=gone))


def limits(life: Life) -> None:
    """Client quotas of three entities; those of one are removed again."""
    alice, anybody, home = (
        QuotaEntity("alice"),
        QuotaEntity(client_id=DEFAULT),
        QuotaEntity(ip="::1"),
    )
    rate = {PRODUCER_BYTE_RATE: 1_000.0}
    entries = (
        QuotaAlteration(alice, rate),
        QuotaAlteration(anybody, rate),
        QuotaAlteration(home, {CONNECTION_CREATION_RATE: 5.0}),
    )
    life.ask(lambda header: AlterQuotas(header, entries))
    gone = (QuotaAlteration(alice, {}, (PRODUCER_BYTE_RATE,)),)
    life.ask(lambda header: AlterQuotas(header, gone))


def alter(life: Life, *resources: ConfigResource) -> None:
    life.ask(lambda header: AlterConfigs(header, resources))


def _set(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, ConfigOperation.SET, value)


def moves(life: Life) -> None:
    """All partitions of a topic begin to move."""
    _move(life, (4, 2, 3))


def arrives(life: Life) -> None:
    """They move, and the new replicas join."""
    _move(life, (4, 2, 3))
    propose(life, _joined_by_4)


def _joined_by_4(isr: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return isr if 4 in isr else (*isr, BrokerId(4))


def calls_off(life: Life) -> None:
    """They move, some arrive, and the rest is called off."""
    _move(life, (4, 2, 3))
    _move(life, None)


def _move(life: Life, replicas: tuple[int, ...] | None) -> None:
    target = None if replicas is None else tuple(map(BrokerId, replicas))
    topic = life.image.topics.get("a")
    numbers = range(0 if topic is None else len(topic.partitions))
    moves = tuple(Move("a", number, target) for number in numbers)
    life.ask(lambda header: AlterReassignments(header, moves))


def elects(life: Life) -> None:
    """A broker stops and returns, and preferred leaders are requested."""
    stops(life)
    life.register(broker(2, start=1))
    life.ask(lambda header: ElectLeaders(header, True, None))


def elects_uncleanly(life: Life) -> None:
    """No replica in sync is alive, and an unclean election is requested."""
    dies(life)
    life.lose(3)
    life.register(broker(3, start=1))
    life.settle()
    life.ask(lambda header: ElectLeaders(header, False, None))


def rebalances(life: Life) -> None:
    """Preferred leaders return without a request."""
    life.lose(1)
    life.settle()
    life.register(broker(1, start=4))
    propose(life, lambda isr: isr if 1 in isr else (*isr, BrokerId(1)))
    life.settle()


def acknowledges(life: Life) -> None:
    """A demotion that is acknowledged is followed by an election."""
    stops(life)
    for one in tuple(life.live.values()):
        life.step(FeedAcknowledged(one.broker_epoch, life.image.position))


def allocates(life: Life) -> None:
    """Producer ids."""
    epoch = broker(1).broker_epoch
    life.ask(lambda header: AllocateProducerIds(header, BrokerId(1), epoch))


def coordinates(life: Life) -> None:
    """A coordinator comes, acquires a shard, and another goes."""
    life.join(a_coordinator(3))
    for shard, owner in enumerate(life.image.shards[TXN]):
        one = life.image.coordinators[TXN, owner.coordinator_id]
        ref = CoordinatorRef(TXN, one.coordinator_id, one.incarnation_id)
        life.ask(partial(_request_with, AcquireShard(UNASKED, ref, shard)))
    life.leave(1)


def forgets(life: Life) -> None:
    """Brokers 5 and 6 join, are configured, end and are unregistered. Broker 6 returns."""
    for number in (5, 6):
        life.register(broker(number))
        alter(life, ConfigResource(BROKER, str(number), (_set("max.connections", "9"),)))
        life.lose(number)
        life.settle()
        life.ask(partial(_unregistration, life, number))
    life.register(broker(6, start=2, disk=1))


def _unregistration(life: Life, number: int, header: RequestHeader) -> UnregisterBroker:
    return UnregisterBroker(header, BrokerId(number), life.listing())


def raises(life: Life) -> None:
    """A topic of one replica gets two more, and a minimum, when brokers are configured so."""
    wanted = (InternalTopic(STATE, 4, 3),)
    for number in (1, 2, 3, 4):
        life.register(replace(broker(number, start=5), internal_topics=wanted))
    for _ in range(2):  # not all partitions move at a time
        propose(life, _joined_by_4)


SCRIPTS: Final[tuple[Script, ...]] = (
    loses_its_disk,
    loses_power,
    is_killed,
    dies,
    stops,
    shrinks,
    reports,
    creates,
    deletes,
    grows,
    configures_topics,
    configures_all,
    permits,
    limits,
    moves,
    arrives,
    calls_off,
    elects,
    elects_uncleanly,
    rebalances,
    acknowledges,
    allocates,
    coordinates,
    raises,
    forgets,
)
