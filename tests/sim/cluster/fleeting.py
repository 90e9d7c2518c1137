"""A topic that an operator creates and deletes while transactions write to it.

Its content is not checked: a batch may reach any of the topics that have had the name. The rule is
that a deletion harms nothing else: every transaction ends, also on the next topic of the same name,
and a group keeps no offset of a topic that no longer exists.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from controller.core.inputs import CreateTopics, DeleteTopics, NewTopic, TopicRef
from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark.runtime import zk_paths

from sim.checkers import require
from sim.cluster.ledger import Ledger
from sim.cluster.parts import SimTopic

if TYPE_CHECKING:
    from sim.cluster.txn_world import TxnWorld
    from sim.cluster.world import World

NAME: Final = "fleeting"
CONFIGS: Final = {"min.insync.replicas": "2"}
FIRST_ID: Final = 100
BACK_MS: Final = (0, 30, 300, 1_200)
"""Times from a deletion to the creation of a topic of the same name."""


def create_or_delete(world: "TxnWorld") -> None:
    """Delete the topic and sometimes create another of the same name soon; or create it."""
    if world.is_sink or world.has_handles:
        return
    if living(world) is None:
        create(world)
        return
    world.note("operator", f"deletes {NAME}")
    refs = (TopicRef(NAME, NO_TOPIC_ID),)
    world.ask_controller(lambda request: DeleteTopics(request, refs))
    if world.dice.chance(0.7):
        world.after(world.dice.pick(BACK_MS), lambda: create(world))


def create(world: "World") -> None:
    """Request the creation. The controller refuses it if a topic of this name exists."""
    if world.is_draining:
        return
    topic_id = TopicId((FIRST_ID + len(world.fleeting)).to_bytes(16, "big"))
    topic = SimTopic(NAME, topic_id, dict(CONFIGS), (), Ledger(f"{NAME}-0"), may_lose=True)
    world.fleeting.append(topic)
    world.by_path[zk_paths.partition(topic_id, 0)] = topic
    world.note("operator", f"creates {NAME}")
    new = NewTopic(NAME, topic_id, 1, 3, configs=CONFIGS)
    dice = world.dice.between(0, 1 << 30)
    world.ask_controller(lambda request: CreateTopics(request, (new,), dice))


def living(world: "World") -> SimTopic | None:
    """Return the topic as ZooKeeper has it, or None."""
    there = (one for one in world.fleeting if one.ledger.state.leader_epoch >= 0)
    return next((one for one in there if not one.is_gone), None)


def has_open_transactions(world: "World") -> bool:
    """True while a replica of the topic as it is now has a transaction that has not ended."""
    topic = living(world)
    if topic is None:
        return False
    tables = [
        one.process.broker.partitions.table.by_name
        for one in world.machines
        if one.process is not None
    ]
    hosted = [table[topic.place] for table in tables if topic.place in table]
    return any(
        len(one.partition.producers.txns) for one in hosted if one.topic_id == topic.topic_id
    )


def check_offsets(world: "World", partitions: set[str]) -> None:
    """Compare the partitions of which a group has offsets with the topics that exist."""
    if living(world) is None:
        kept = [one for one in partitions if one.startswith(NAME)]
        require(not kept, "groups keep no offset of a deleted topic", str(kept))


FLEETING_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    "delete_topic": (create_or_delete, 6),
}
"""Faults by name, each with its weight."""
