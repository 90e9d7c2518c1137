"""A cluster whose controllers end at any moment, and a model of what its replicas have.

The model assumes the worst: a leader with enough replicas in sync commits something after each
change, which no other replica has. It notes which replicas have all of that, and which processes
may acknowledge on their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core.cluster import PutPartition, PutTopic
from controller.core.effects import Effect, Publish, RemoveLiveZnode
from controller.core.election_rules import is_unclean
from controller.core.inputs import FeedRegained, Input
from controller.core.isr import effective_min
from controller.core.reassignments import target_of
from controller.core.topic_rules import rules_of
from sim.znode_tree import Tree
from tidemark.model.ids import NO_BROKER, BrokerId, InstantMs
from tidemark.model.metadata import ClusterImage, PartitionImage, TopicImage
from tidemark.runtime.metadata_wire import apply_update, delta_update, snapshot_update
from unit.controller.lives import LEASE_MS, Life, finish
from unit.controller.worlds import a_broker, a_topic

BROKERS = tuple(map(BrokerId, (1, 2, 3, 4)))
TOPIC = "t"
ALWAYS = 1 << 60
_PLACES = ((1, 2, 3), (2, 3, 1), (4, 1), (3,))


class Follower:
    """A subscriber of the feed, with all that travels over the wire."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._take(snapshot_update(image))

    def _take(self, update: Any) -> None:
        steps = apply_update(self.image, update)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            self.image = end.value[0]

    def take(self, published: Publish) -> None:
        """Apply a delta, and compare the image with the controller's."""
        image, sent = published.image, published.delta.narrowed(self.image)
        self._take(delta_update(sent, image.position, image.controller_id))
        assert _shown(self.image) == _shown(image), "the follower has what the controller has"


def _shown(image: ClusterImage) -> list[object]:
    brokers = [replace(one, internal_topics=()) for one in image.brokers.values()]
    return [brokers, image.topics, image.topics_by_id, image.broker_configs, image.position]


def partitions_of(image: ClusterImage) -> Iterator[tuple[int, PartitionImage, TopicImage]]:
    """Yield all partitions with their numbers and their topic, the only one."""
    topic = image.topics[TOPIC]
    for one in topic.partitions:
        yield one.partition, one, topic


@dataclass
class Model:
    """What replicas have and processes believe. Partitions are known by their numbers."""

    image: ClusterImage
    """The last one that was checked."""
    whole: dict[int, set[int]] = field(default_factory=dict)
    """Replicas with every record that may be committed."""
    led: dict[tuple[int, int], int] = field(default_factory=dict)
    """Leader of each leader epoch."""
    broken: set[int] = field(default_factory=set)
    """Brokers that lost their disks and are not registered since."""
    failed: set[tuple[bytes, int]] = field(default_factory=set)
    """Processes whose directory with a partition failed: they lead it no longer."""
    views: dict[bytes, ClusterImage] = field(default_factory=dict)
    """Image on which a process has acted last."""
    lease_until: dict[bytes, int] = field(default_factory=dict)

    def lose(self, number: int, broker: int) -> None:
        """Note that a replica lost records. The only replica goes on with what is left."""
        if len(self.image.topics[TOPIC].partitions[number].replicas) > 1:
            self.whole[number].discard(broker)

    def take(self, image: ClusterImage, now: InstantMs) -> None:
        """Check what an image changes; then commit what may be committed in it."""
        for number, after, topic in partitions_of(image):
            before = self.image.topics[TOPIC].partitions[number]
            whole = self.whole.setdefault(number, set(after.replicas))
            for replicas in (before.replicas, after.replicas):
                whole |= set(replicas if len(replicas) == 1 else ())
            if before != after:
                self._step(number, before, after, image, now)
            self._check(number, after)
            leader = image.brokers.get(after.leader)
            minimum = effective_min(after, rules_of(image, topic).min_insync_replicas)
            if leader is not None and len(after.isr) >= minimum:
                whole &= set(after.isr)
        self.image = image

    def _check(self, number: int, state: PartitionImage) -> None:
        whole, counted = self.whole[number], {*state.isr, *state.elr} - self.broken
        if len(state.replicas) > 1:
            assert counted <= whole, f"{number}: {counted - whole} lack records: {state}"
        if state.leader != NO_BROKER:
            led = self.led.setdefault((number, state.leader_epoch), state.leader)
            assert led == state.leader, f"{number}: two leaders of one epoch: {state}"
        is_done = set(target_of(state)) <= set(state.isr)
        assert not (state.is_reassigning and is_done), f"{number}: the move does not end: {state}"

    def _step(
        self,
        number: int,
        before: PartitionImage,
        after: PartitionImage,
        image: ClusterImage,
        now: InstantMs,
    ) -> None:
        whole, words = self.whole[number], f"{number}: {before} {after}"
        assert after.leader_epoch >= before.leader_epoch, words
        assert after.partition_epoch > before.partition_epoch, words
        alive = {one.broker_id for one in image.brokers.values() if not one.fenced}
        if after.leader in alive and after.leader_epoch != before.leader_epoch:
            if is_unclean(before, after.leader):
                whole.clear()
                whole.add(after.leader)
            assert after.leader in whole, words
            self._check_alone(number, after, image, now)
        if before.leader in whole and after.leader in (before.leader, NO_BROKER):
            whole |= set(after.isr) - set(before.isr)  # the leader has seen them catch up
        had, has = {*before.isr, *before.elr}, {*after.isr, *after.elr}
        if had & whole & alive - self.broken and not (before.elr and after.isr == before.isr != ()):
            assert has & whole - self.broken, f"the last one with all records goes: {words}"

    def _check_alone(
        self, number: int, state: PartitionImage, image: ClusterImage, now: InstantMs
    ) -> None:
        """Assert that no other process believes that it leads, and has a lease."""
        leads = image.brokers[state.leader].incarnation_id
        for process, view in self.views.items():
            if process == leads or (process, number) in self.failed:
                continue
            led = view.brokers.get(view.topics[TOPIC].partitions[number].leader)
            if led is not None and led.incarnation_id == process:
                assert now >= self.lease_until.get(process, 0), f"{led.broker_id} leads {state} too"


class World(Life):
    """A term of a controller, with the model of its cluster and a subscriber of its feed."""

    model: Model
    count: int
    """Number that names the next process, directory or boot."""
    follower: Follower | None = None

    def step(self, stimulus: Input) -> list[Effect]:
        """Do as a life, and check all that is published."""
        effects = super().step(stimulus)
        for effect in effects:
            if isinstance(effect, RemoveLiveZnode):
                live = self.live.get(effect.broker_id)
                if live is not None and live.incarnation_id == effect.incarnation_id:
                    self.lose(effect.broker_id)
        return effects

    def published(self, published: Publish) -> None:
        """Check it."""
        if self.follower is not None:
            self.follower.take(published)
            self.model.take(published.image, self.now)

    def lose(self, broker_id: int) -> None:
        """Remove a live znode: the lease of its process runs from now on."""
        live = self.live.get(BrokerId(broker_id))
        if live is not None:
            leases = self.model.lease_until
            until = self.now + LEASE_MS
            leases[live.incarnation_id] = min(leases.get(live.incarnation_id, 0), until)
        super().lose(broker_id)

    def begin_with(self, model: Model | None, count: int) -> "World":
        """Begin the term. Every live broker subscribes."""
        self.count = count
        if model is not None:
            self.model = model
        self.step(self.begin)
        if model is None:
            self.model = Model(self.image)
        for broker in tuple(self.live.values()):
            self.step(FeedRegained(broker.broker_epoch))
        self.follower = Follower(self.image)
        self.model.take(self.image, self.now)
        return self


def a_tree() -> Life:
    """Return a life that leaves four registered brokers and a topic in its tree."""
    life = Life(Tree())
    life.start()
    for number in BROKERS:
        life.register(replace(a_broker(number), log_dir_ids=(bytes([number]),), boot_id="boot"))
    topic = a_topic(TOPIC, *_PLACES)
    puts = [PutPartition(topic.topic_id, one) for one in topic.partitions]
    finish(life.store.write([*puts, PutTopic(topic)]))
    return life
