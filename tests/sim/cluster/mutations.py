"""Deliberate bugs of replication, one at a time: the simulator must find each of them.

A mutation changes the product, never the simulator. Its name describes the bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from broker.core.bounds import LogBounds
from broker.core.commitment import Commitment
from broker.core.directory_move import DirectoryMove, Sync
from broker.core.isr import Isr
from broker.core.partition import Partition
from broker.core.replica_set import ReplicaSet
from broker.shell.cluster import held_logs
from broker.shell.partitions import hosting
from broker.storage.directory import LogDirectory
from broker.storage.disk_failures import DiskFailures
from broker.storage.log import Log
from controller.core import isr_changes, reassignments, registration, soundness, term
from controller.core.cluster import PutBroker, store_ops
from controller.core.configs import decide_alter_configs
from controller.core.leader_replacement import LeaderReplacement
from controller.core.soundness import Holdings, Soundness
from controller.shell.zk_store import ZkStore
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import PartitionEpoch
from tidemark.runtime import zk_paths
from tidemark.storage.disk import DiskError, ExhaustedError

from sim.cluster import supervisor
from sim.cluster.parts import Options
from sim.mutations import Change, changed


def _truncate_to_watermark(bounds: LogBounds, _epoch: int, _end: int) -> int:
    return bounds.high_watermark


def _count_only_the_proposed(isr: Isr, proposal: Any) -> None:
    isr.pending = proposal
    isr.maximal = proposal.members


def _count_only_the_agreed(isr: Isr, proposal: Any) -> None:
    isr.pending = proposal
    isr.maximal = isr.agreed


_refusal = isr_changes._refusal


def _accept_an_older_leader(image: Any, partition: Any, broker_id: Any, change: Any) -> ErrorCode:
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.INVALID_REQUEST
    return _refusal(image, partition, broker_id, change)


def _join_in_any_incarnation(
    replicas: ReplicaSet, broker_id: Any, live: Any, joins_at: int, *, synced: bool
) -> bool:
    end = replicas.progress[broker_id].counted_end(synced=synced)
    return live.get(broker_id) is not None and end >= joins_at


def _let_any_incarnation_join(image: Any, broker_id: Any, _epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


_lead = Partition.lead


def _lead_with_all_committed(partition: Partition, state: Any, now: Any) -> bool:
    led = _lead(partition, state, now)
    if led:
        partition.bounds.high_watermark = partition.bounds.log_end
    return led


def _take_all_for_committed(partition: Partition, _high_watermark: int) -> bool:
    return partition.bounds.follow(partition.bounds.log_end)


_next_step = DirectoryMove.next_step


def _never_sync_the_copy(move: DirectoryMove, log: Any, future: Any) -> Any:
    there = future._replace(synced_end=future.log_end)
    step = _next_step(move, log, there)
    if isinstance(step, Sync):
        move.synced()
        step = _next_step(move, log, there)
    return step


_record_end = supervisor.record_end


async def _record_the_end_of_the_next(session: Any, left: Any) -> bool:
    parent, name = left.znode.rsplit("/", 1)
    prefix = name.split("-")[0] + "-"
    names, _ = await session.children(parent)
    for each in (one for one in names if one.startswith(prefix)):
        znode, ended = f"{parent}/{each}", f"{zk_paths.ENDED_BROKERS}/{each}"
        return await _record_end(session, left._replace(znode=znode, ended_znode=ended))
    return False


_move = Commitment.move


def _count_what_is_in_memory(commitment: Commitment) -> int:
    limits = commitment.limits
    commitment.limits = replace(limits, flush_group=False)
    try:
        return _move(commitment)
    finally:
        commitment.limits = limits


_ends_at = Log._ends_at


def _remember_all_producers(log: Log, end: int) -> None:
    known = log.producers.state()
    _ends_at(log, end)
    log.producers.restore(known)


def _all_that_are_gone(replacement: LeaderReplacement, _now: Any) -> frozenset[Any]:
    return frozenset(one.broker_id for one in replacement._gone)


_store_ops = store_ops


def _brokers_first(image: Any, change: Any) -> list[Any]:
    return sorted(_store_ops(image, change), key=lambda op: not isinstance(op, PutBroker))


def _cut_it_at_once(state: Any, broker: Any, *, unsound_since: int) -> bool:
    del unsound_since
    return state.leader not in (-1, broker)


def _same_epoch(partition: Any, leader: Any) -> Any:
    return replace(
        partition, leader=leader, partition_epoch=PartitionEpoch(partition.partition_epoch + 1)
    )


_soundness = Holdings.soundness


def _in_any_directory(holdings: Holdings, topic: Any, partition: Any) -> Soundness:
    return _soundness(replace(holdings, new_directories=frozenset()), topic, partition)


def _never_made(holdings: Holdings, topic: Any, partition: Any) -> Soundness:
    logs, key = holdings.logs, (topic.topic_id, partition.partition)
    if logs is None or key in logs.damaged or key in logs.lost or holdings.nothing_kept:
        return _soundness(holdings, topic, partition)
    return Soundness.SOUND


_outlived = registration._outlived


def _only_the_living(known: Any, broker: Any, listing: Any) -> Any:
    problem = _outlived(known, broker, listing)
    is_stale = problem is not None and problem.code is ErrorCode.STALE_BROKER_EPOCH
    return None if is_stale else problem


_fence = LogDirectory.fence


def _fence_for_want_of_descriptors(shared: LogDirectory, error: DiskError) -> None:
    exhausted = isinstance(error, ExhaustedError)
    _fence(shared, DiskError(error.path, error.reason) if exhausted else error)


_CONFIRMS_ALONE: Final = "confirms a deletion that only the leader has made"
_SERVES_UNCOMMITTED: Final = "serves at a follower what is not committed"

MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "truncates by high watermark": ((LogBounds, "truncation_for", _truncate_to_watermark),),
    "acknowledges on an unagreed shrink": ((Isr, "propose", _count_only_the_proposed),),
    "accepts a stale leader epoch": ((isr_changes, "_refusal", _accept_an_older_leader),),
    "lets a stale broker epoch join the ISR": (
        (ReplicaSet, "_may_join", _join_in_any_incarnation),
        (isr_changes, "_may_join", _let_any_incarnation_join),
    ),
    "takes the agreed ISR for the maximal": ((Isr, "propose", _count_only_the_agreed),),
    "takes a new leader's log end for its high watermark": (
        (Partition, "lead", _lead_with_all_committed),
    ),
    "keeps an unclean restart in the ISR": (
        (registration, "has_kept_its_page_cache", lambda *_: True),
    ),
    "writes without checking the controller epoch": ((ZkStore, "_check", lambda _: iter(())),),
    "replaces a leader without waiting for its lease": (
        (LeaderReplacement, "expired", _all_that_are_gone),
    ),
    "keeps producers that were truncated away": ((Log, "_ends_at", _remember_all_producers),),
    "keeps the ELR when the minimum changes": ((term, "decide_configs", decide_alter_configs),),
    "registers a broker before what it lost": ((term, "store_ops", _brokers_first),),
    "acknowledges before the sync": ((Commitment, "move", _count_what_is_in_memory),),
    "registers damaged logs as sound": ((held_logs, "worth", lambda *_: "sound"),),
    "forgets over a restart that a disk failed": ((DiskFailures, "reason", lambda *_: None),),
    "takes a log that is gone for one that was never made": ((Holdings, "soundness", _never_made),),
    "keeps the leader epoch when a replica is removed": (
        (reassignments, "next_epoch", lambda partition, _: partition),
    ),
    "takes the logs of an old disk for sound": ((Holdings, "soundness", _in_any_directory),),
    "cuts a damaged log while it counts": ((hosting, "may_repair", _cut_it_at_once),),
    "keeps the leader epoch when an unsound member leaves": (
        (soundness, "next_epoch", _same_epoch),
    ),
    "lets a broker id change hands within a lease": (
        (LeaderReplacement, "lease_left_ms", lambda *_: 0),
    ),
    "records the end of the process that has the broker id now": (
        (supervisor, "record_end", _record_the_end_of_the_next),
    ),
    "lets broker epochs fall": ((registration, "_outlived", _only_the_living),),
    "takes a want of descriptors for a failed disk": (
        (LogDirectory, "fence", _fence_for_want_of_descriptors),
    ),
    "swaps in a copy that is not on disk": ((DirectoryMove, "next_step", _never_sync_the_copy),),
    _CONFIRMS_ALONE: ((ReplicaSet, "common_start", lambda _, own_start: own_start),),
    _SERVES_UNCOMMITTED: ((Partition, "leader_told", _take_all_for_committed),),
}

FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "truncates by high watermark": ("kill", "cut_followers"),
    "accepts a stale leader epoch": ("isolate", "cut_followers", "cut"),
    "lets a stale broker epoch join the ISR": ("lose_joining", "cut_followers", "kill"),
    "takes the agreed ISR for the maximal": ("agree_late", "kill"),
    "writes without checking the controller epoch": ("pause", "cut_zookeeper", "kill"),
    "replaces a leader without waiting for its lease": ("pause", "cut_zookeeper", "isolate"),
    "keeps producers that were truncated away": ("kill", "pause"),
    "keeps the ELR when the minimum changes": ("cut_followers", "alter_minimum"),
    "registers a broker before what it lost": ("cut_a_change",),
    "acknowledges before the sync": ("kill",),
    "registers damaged logs as sound": ("damage_leader",),
    "forgets over a restart that a disk failed": ("fail_syncs",),
    "takes a log that is gone for one that was never made": ("lose_disk",),
    "keeps the leader epoch when a replica is removed": ("move", "isolate"),
    "takes the logs of an old disk for sound": ("put_back", "kill"),
    "cuts a damaged log while it counts": ("rot", "cut_followers", "elect_preferred"),
    "keeps the leader epoch when an unsound member leaves": ("rot",),
    "lets a broker id change hands within a lease": ("rival",),
    "records the end of the process that has the broker id now": ("kill", "cut_zookeeper"),
    "lets broker epochs fall": ("rival",),
    "takes a want of descriptors for a failed disk": ("exhaust",),
    "swaps in a copy that is not on disk": ("move_directory",),
    _CONFIRMS_ALONE: ("cut_followers", "kill"),
    _SERVES_UNCOMMITTED: ("cut_followers", "kill"),
}
"""Faults under which a mutation is found soon; all faults for mutations without an entry."""

_OF_MOVES: Final = ("keeps the leader epoch when a replica is removed",)
"""Mutations that need a broker without a replica, to which one can move."""


BREAKS: Final[dict[str, tuple[str, ...]]] = {
    "truncates by high watermark": ("a member of the ISR has all that is committed",),
    "acknowledges on an unagreed shrink": ("Partition.check",),
    "accepts a stale leader epoch": ("leaders are in sync",),
    "lets a stale broker epoch join the ISR": (
        "a member of the ISR has all that is committed",
        "ELR has all that is committed",
    ),
    "takes the agreed ISR for the maximal": ("a member of the ISR has all that is committed",),
    "takes a new leader's log end for its high watermark": (
        "a member of the ISR has all that is committed",
    ),
    "keeps an unclean restart in the ISR": ("a member of the ISR has all that is committed",),
    "writes without checking the controller epoch": ("only the elected controller writes",),
    "replaces a leader without waiting for its lease": (
        "nobody acknowledges alone once another may lead",
    ),
    "keeps producers that were truncated away": ("producers are known by what is in the log",),
    "keeps the ELR when the minimum changes": ("ELR has all that is committed",),
    "registers a broker before what it lost": ("a member of the ISR has all that is committed",),
    "acknowledges before the sync": ("with flush=group what is committed is on disk",),
    "registers damaged logs as sound": ("a member of the ISR has all that is committed",),
    "forgets over a restart that a disk failed": (
        "a member of the ISR has all that is committed",
        "logs agree below the high watermark",
    ),
    "takes a log that is gone for one that was never made": (
        "a member of the ISR has all that is committed",
    ),
    "keeps the leader epoch when a replica is removed": (
        "a member of the ISR has all that is committed",
    ),
    "takes the logs of an old disk for sound": ("a member of the ISR has all that is committed",),
    "cuts a damaged log while it counts": (
        "a member of the ISR has all that is committed",
        "ELR has all that is committed",
        "logs agree below the high watermark",
    ),
    "keeps the leader epoch when an unsound member leaves": (
        "a member of the ISR has all that is committed",
        "after healing everybody is in sync",
    ),
    "lets a broker id change hands within a lease": (
        "nobody acknowledges alone once another may lead",
    ),
    "records the end of the process that has the broker id now": (
        "nobody acknowledges alone once another may lead",
    ),
    "lets broker epochs fall": ("after healing everybody is in sync",),
    "takes a want of descriptors for a failed disk": ("without descriptors no disk has failed",),
    "swaps in a copy that is not on disk": ("with flush=group what is committed is on disk",),
    _CONFIRMS_ALONE: ("what is deleted stays deleted",),
    _SERVES_UNCOMMITTED: ("what was read is committed, and stays",),
}
"""Promises that each mutation breaks; only a failure of one of these counts as found."""


def options_for(name: str) -> Options:
    """Return options of a run in which the mutation is found soon."""
    return Options(
        faults=FOUND_BY.get(name),
        brokers=4 if name in _OF_MOVES else 0,
        records_are_deleted=name == _CONFIRMS_ALONE,
        followers_serve=name == _SERVES_UNCOMMITTED,
    )


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put one bug into the product."""
    with changed(MUTATIONS[name]):
        yield
