"""Deliberate bugs of transactions and groups, one at a time: the simulator must find each of them.

A mutation changes the product, never the simulator. Its name describes the bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from broker.core.admission import Admission
from broker.core.groups import conversion, group_rules
from broker.core.groups.consumer import classic_members, reconciliation
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.consumer.state import ConsumerGroupState
from broker.core.groups.offsets import Offsets
from broker.core.groups.shard import GroupShard
from broker.core.open_txns import OpenTxns
from broker.core.producers import ACCEPTED, ProducerTable
from broker.shell.transactions.txn_verifier import TxnVerifier
from broker.storage.txn_index import TxnIndex
from tidemark.codec.txn_records import EndKind
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Decision
from tidemark.runtime.shard_runtime import ShardRuntime
from tidemark.storage.disk import DiskFullError
from txn_coordinator.core import additions, multi_writer_rules, sink_rules, transaction
from txn_coordinator.core.effects import Answer, SendMarkers
from txn_coordinator.core.requests import AddOffsets, BatchRefusal, FinishBatchReply
from txn_coordinator.core.shard import TxnShard
from txn_coordinator.shell.node import TxnCoordinatorNode

from sim.cluster.txn_world import TxnOptions
from sim.mutations import Change, changed

_take = ShardRuntime._take
_ask = TxnVerifier.ask
_replay_end = Offsets.replay_end
_write_index = TxnIndex.write
_loaded = TxnShard.loaded
_next_session = transaction.next_session
_finish_batch = sink_rules.finish
_refused = sink_rules._refused
_assign_again = multi_writer_rules._assign_again
_winners_problem = multi_writer_rules.winners_problem


def _send_markers_at_once(runtime: Any, decision: Any) -> None:
    later = []
    for effect in decision.effects:
        if isinstance(effect, SendMarkers):
            runtime._perform(effect)
        else:
            later.append(effect)
    _take(runtime, Decision(decision.records, tuple(later), decision.writer))


def _answer_at_once(runtime: Any, decision: Any) -> None:
    later = []
    for effect in decision.effects:
        if isinstance(effect, SendMarkers):
            later.append(effect)
        else:
            runtime._perform(effect)
    _take(runtime, Decision(decision.records, tuple(later), decision.writer))


async def _believe_v1(
    verifier: Any, transactional_id: str, *args: Any, transactions_v2: bool, **named: Any
) -> Any:
    if not transactions_v2:
        return None
    return await _ask(verifier, transactional_id, *args, transactions_v2=transactions_v2, **named)


async def _shows_any_topic(_: Any, __: Any) -> bool:
    return True


def _publish_always(offsets: Any, writer: Any, *, commits: bool) -> None:
    del commits
    _replay_end(offsets, writer, commits=True)


def _only_open_ones(txns: OpenTxns, high_watermark: int) -> int:
    first = txns.first_open()
    return high_watermark if first is None else min(first, high_watermark)


def _forget_what_was_prepared(shard: Any, now: Any) -> Any:
    decision = _loaded(shard, now)
    return Decision(decision.records)


def _answer_what_waited(shard: Any, completed: Any) -> Any:
    answers = []
    for waiting in shard._parked.take(completed.transactional_id):
        asked = waiting.request
        is_of_offsets = isinstance(asked, AddOffsets)
        added = additions.as_partitions(asked, shard._settings) if is_of_offsets else asked
        reply = additions.all_added(added)
        told = additions.as_offsets_reply(reply) if is_of_offsets else reply
        answers.append(Answer(waiting.request_id, told))
    return Decision((completed,), answers)


def _same_epoch(record: Any, timeout_ms: int, wall_ms: int, *, last_producer_epoch: int) -> Any:
    following = _next_session(record, timeout_ms, wall_ms, last_producer_epoch=last_producer_epoch)
    return replace(following, producer_epoch=record.producer_epoch)


def _count_all(txn: Any, winners: Any, wall_ms: int) -> Any:
    slots = tuple(slot.slot for slot in txn.enlisted())
    crc = multi_writer_rules.winners_crc(winners)
    kind = EndKind.COMMITTED
    return multi_writer_rules.ended(txn.record, kind, wall_ms, winners=slots, winners_crc=crc)


def _first_again(txn: Any, request: Any, wall_ms: int, settings: Any) -> Any:
    ruling = _finish_batch(txn, request, wall_ms, settings)
    reply = ruling.reply
    if not request.commit or not isinstance(reply, FinishBatchReply) or not reply.committed:
        return ruling
    told = replace(reply, first=True, same_writers=True, note=request.note)
    return ruling._replace(reply=told)


def _let_in(refusal: BatchRefusal) -> Change:
    def refused(record: Any, query_id: str, batch_id: int) -> Any:
        found = _refused(record, query_id, batch_id)
        return None if found is not None and found[2] is refusal else found

    return (sink_rules, "_refused", refused)


def _same_assignment(slot: Any, request: Any) -> Any:
    return _assign_again(replace(slot, producer_epoch=slot.producer_epoch - 1), request)


def _whoever_has_the_name(txn: Any, winners: Any) -> Any:
    problem = _winners_problem(txn, winners)
    is_replaced = problem is not None and problem[0] is ErrorCode.PRODUCER_FENCED
    return None if is_replaced else problem


def _forget_what_finds_no_space(index: Any, disk: Any) -> None:
    written_count = index._written_count
    try:
        _write_index(index, disk)
    except DiskFullError:
        del index.aborted[written_count:]
        raise


SINK_MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "commits what losers wrote, too": ((multi_writer_rules, "committed", _count_all),),
    "takes a second commit of a batch for its first": ((sink_rules, "finish", _first_again),),
    "lets a stale batch in": (_let_in(BatchRefusal.STALE_BATCH),),
    "lets a retired query back": (_let_in(BatchRefusal.RETIRED_QUERY),),
    "hands a slot out twice": ((multi_writer_rules, "_assign_again", _same_assignment),),
    "commits another hand-out than was named": (
        (multi_writer_rules, "winners_problem", _whoever_has_the_name),
    ),
}
"""Mutations of a sink's batches, found in runs of streaming queries."""

HANDLE_MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "commits writers that a handle's commit left out": (
        (multi_writer_rules, "committed", _count_all),
    ),
    "takes a commit of others for the same": ((multi_writer_rules, "winners_crc", lambda _: 0),),
}
"""Mutations of durable handles."""

KIP_848_MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "gives a partition to two": ((ConsumerGroupState, "owner_of", lambda *_: None),),
    "waits for no revocation": ((reconciliation, "still_owns", lambda *_: False),),
    "takes offsets of any epoch": (
        (ConsumerGroup, "commit_refused", lambda *_, **__: ErrorCode.NONE),
    ),
}
"""Mutations of groups of the new protocol."""

ROLLING_MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "forgets the assignments of a group that it converts": (
        (conversion, "read_assignment", lambda _: ()),
    ),
    "takes a joining member for one that owns nothing": (
        (classic_members, "owned_when_joining", lambda *_: {}),
    ),
}
"""Mutations of groups whose members change their protocol."""

MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "sends markers before the outcome is committed": (
        (ShardRuntime, "_take", _send_markers_at_once),
    ),
    "answers before the outcome is committed": ((ShardRuntime, "_take", _answer_at_once),),
    "does not verify what v1 writes": ((TxnVerifier, "ask", _believe_v1),),
    "takes a marker of any epoch": ((ProducerTable, "check_marker", lambda *_, **__: ACCEPTED),),
    "publishes offsets of aborted transactions": ((Offsets, "replay_end", _publish_always),),
    "takes appends of any owner": ((Admission, "owner_refused", lambda *_: None),),
    "takes an ended transaction for a replicated one": (
        (OpenTxns, "last_stable", _only_open_ones),
    ),
    "sends no markers again after a load": ((TxnShard, "loaded", _forget_what_was_prepared),),
    "answers additions that waited without adding": ((TxnShard, "_followed", _answer_what_waited),),
    "takes offsets of any generation": (
        (group_rules, "txn_commit_refused", lambda *_: ErrorCode.NONE),
    ),
    "gives a new session the epoch of the last": ((transaction, "next_session", _same_epoch),),
    "takes a topic for another one of its name": (
        (TxnCoordinatorNode, "shows_topics", _shows_any_topic),
    ),
    "keeps the offsets of deleted topics": (
        (Offsets, "delete_topics", lambda *_: []),
        (Offsets, "delete_unknown", lambda *_: []),
    ),
    "takes offsets of a deleted topic": (
        (GroupShard, "_partition_count", lambda *_: 1_000),
        (Offsets, "delete_unknown", lambda *_: []),
    ),
    "forgets an abort whose index entry finds no space": (
        (TxnIndex, "write", _forget_what_finds_no_space),
    ),
    **SINK_MUTATIONS,
    **HANDLE_MUTATIONS,
    **KIP_848_MUTATIONS,
    **ROLLING_MUTATIONS,
}

_V1: Final = ("does not verify what v1 writes",)
_FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "does not verify what v1 writes": ("cut_client",),
    "takes a marker of any epoch": ("delay_coordinator",),
    "takes appends of any owner": ("pause_coordinator", "append_late", "kill_state_leader"),
    "takes an ended transaction for a replicated one": ("mark_unheard",),
    "takes a topic for another one of its name": ("delete_topic", "delay_feed"),
    "keeps the offsets of deleted topics": ("delete_topic",),
    "takes offsets of a deleted topic": ("delete_topic", "delay_coordinator"),
    "forgets an abort whose index entry finds no space": ("fill",),
}
"""Faults under which a mutation is found soon; all faults for mutations without an entry."""

_LENGTHS_MS: Final = {
    "takes a topic for another one of its name": 9_000,
    "forgets an abort whose index entry finds no space": 9_000,
    "waits for no revocation": 8_000,
}
"""Longer runs: the topic must be made again while a coordinator still knows the one before; an
abort marker must be the last thing that fits; a member must be late to give up what it has.
"""


BREAKS: Final[dict[str, tuple[str, ...]]] = {
    "sends markers before the outcome is committed": ("nothing is marked before it is decided",),
    "answers before the outcome is committed": (
        "a partition takes only what the coordinator knows of",
    ),
    "does not verify what v1 writes": ("a partition takes only what the coordinator knows of",),
    "takes a marker of any epoch": ("a marker ends the transaction that it was decided for",),
    "publishes offsets of aborted transactions": (
        "no offsets are committed without their data",
        "each offset is consumed once",
    ),
    "takes appends of any owner": (
        "producer epochs never fall",
        "the log has one owner after another",
    ),
    "takes an ended transaction for a replicated one": ("the last stable offset never goes back",),
    "sends no markers again after a load": (
        "after healing every transaction ends, and all is copied",
    ),
    "answers additions that waited without adding": (
        "a partition takes only what the coordinator knows of",
    ),
    "takes offsets of any generation": ("each offset is consumed once",),
    "takes a topic for another one of its name": (
        "after healing every transaction ends, and all is copied",
    ),
    "keeps the offsets of deleted topics": ("groups keep no offset of a deleted topic",),
    "takes offsets of a deleted topic": ("groups keep no offset of a deleted topic",),
    "forgets an abort whose index entry finds no space": (
        "aborted transactions are indexed as the log says",
        "nobody reads the aborted",
        "what was read stays",
    ),
    "gives a new session the epoch of the last": (
        "what is acknowledged is committed",
        "a transactional client hears what it understands",
    ),
    "commits what losers wrote, too": ("nobody reads the aborted",),
    "takes a second commit of a batch for its first": ("a batch has one first commit",),
    "lets a stale batch in": ("no batch is let in that is committed, or older",),
    "lets a retired query back": ("no query comes back",),
    "hands a slot out twice": ("what is acknowledged is committed",),
    "commits another hand-out than was named": ("a batch is what its commit named",),
    "commits writers that a handle's commit left out": ("nobody reads from an open transaction",),
    "takes a commit of others for the same": ("a transaction ends once",),
    "gives a partition to two": ("nobody is given what another still has",),
    "waits for no revocation": ("nobody is given what another still has",),
    "takes offsets of any epoch": ("each offset is consumed once",),
    "forgets the assignments of a group that it converts": (
        "nobody is given what another still has",
    ),
    "takes a joining member for one that owns nothing": ("nobody is given what another still has",),
}
"""Promises that each mutation breaks; only a failure of one of these counts as found."""


def options_for(name: str) -> TxnOptions:
    """Return options of a run in which the mutation is found soon."""
    return TxnOptions(
        length_ms=_LENGTHS_MS.get(name, TxnOptions.length_ms),
        faults=_FOUND_BY.get(name),
        is_v2=False if name in _V1 else None,
        is_sink=name in SINK_MUTATIONS,
        has_handles=name in HANDLE_MUTATIONS,
        is_kip_848=name in KIP_848_MUTATIONS,
        is_rolling=name in ROLLING_MUTATIONS,
    )


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put one bug into the product."""
    with changed(MUTATIONS[name]):
        yield
