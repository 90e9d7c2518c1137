"""Bugs of transactions and groups made on purpose, one at a time: the simulator must find each.

A mutation changes the product, never the simulator. Each is named after what it does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from broker.core.groups import kinds
from broker.core.groups.offsets import Offsets
from broker.core.open_txns import OpenTxns
from broker.core.partition import Partition
from broker.core.producers import ACCEPTED, ProducerTable
from broker.shell.txn_verifier import TxnVerifier
from tidemark.machine.shard import Decision
from tidemark.model.errors import ErrorCode
from tidemark.runtime.shard_runtime import ShardRuntime
from txn_coordinator.core import transaction
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.shard import TxnShard

from sim.cluster.txn_world import TxnOptions
from sim.mutations import Change, changed

_take = ShardRuntime._take
_ask = TxnVerifier.ask
_replay_end = Offsets.replay_end
_loaded = TxnShard.loaded
_next_session = transaction.next_session


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
    verifier: Any, transactional_id: str, *args: Any, transactions_v2: bool
) -> Any:
    if not transactions_v2:
        return None
    return await _ask(verifier, transactional_id, *args, transactions_v2=transactions_v2)


def _publish_always(offsets: Any, writer: Any, *, commits: bool) -> None:
    del commits
    _replay_end(offsets, writer, commits=True)


def _only_open_ones(txns: OpenTxns, high_watermark: int) -> int:
    first = txns.first_open()
    return high_watermark if first is None else min(first, high_watermark)


def _forget_what_was_prepared(shard: Any, now: Any) -> Any:
    decision = _loaded(shard, now)
    return Decision(decision.records)


def _same_epoch(record: Any, timeout_ms: int, wall_ms: int, *, last_producer_epoch: int) -> Any:
    following = _next_session(record, timeout_ms, wall_ms, last_producer_epoch=last_producer_epoch)
    return replace(following, producer_epoch=record.producer_epoch)


MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "sends markers before the outcome is committed": (
        (ShardRuntime, "_take", _send_markers_at_once),
    ),
    "answers before the outcome is committed": ((ShardRuntime, "_take", _answer_at_once),),
    "does not verify what v1 writes": ((TxnVerifier, "ask", _believe_v1),),
    "takes a marker of any epoch": ((ProducerTable, "check_marker", lambda *_, **__: ACCEPTED),),
    "publishes offsets of aborted transactions": ((Offsets, "replay_end", _publish_always),),
    "takes appends of any owner": ((Partition, "owner_refused", lambda *_: None),),
    "takes an ended transaction for a replicated one": (
        (OpenTxns, "last_stable", _only_open_ones),
    ),
    "sends no markers again after a load": ((TxnShard, "loaded", _forget_what_was_prepared),),
    "takes offsets of any generation": ((kinds, "txn_commit_refused", lambda *_: ErrorCode.NONE),),
    "gives a new session the epoch of the last": ((transaction, "next_session", _same_epoch),),
}

_V1: Final = ("does not verify what v1 writes",)
_FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "does not verify what v1 writes": ("cut_client",),
    "takes a marker of any epoch": ("delay_coordinator",),
    "takes appends of any owner": ("pause_coordinator", "append_late", "kill_state_leader"),
    "takes an ended transaction for a replicated one": ("mark_unheard",),
}
"""Faults under which a mutation shows soon; all of them for the others."""


def options_for(name: str) -> TxnOptions:
    """Of a run in which the mutation shows soon."""
    return TxnOptions(faults=_FOUND_BY.get(name), is_v2=False if name in _V1 else None)


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with one bug in it."""
    with changed(MUTATIONS[name]):
        yield
