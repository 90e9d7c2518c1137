"""Deliberate bugs of share groups, one at a time: the simulator must find each of them.

A mutation changes the product, never the simulator. Its name describes the bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from broker.core.share import acknowledgement, letter_copies, share_partition, state_writes
from broker.core.share.acknowledgement import DONE
from broker.core.share.dead_letters import DeadLetters
from broker.core.share.key_order import KeyOrder
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import SharePartition
from broker.core.share.states import ACKNOWLEDGED, ACQUIRED
from broker.shell.partitions.record_deletion import RecordDeletion
from broker.shell.share.share_partitions import SharePartitions
from share_coordinator.core import share_state, share_states, state_batches
from share_coordinator.core.live_offsets import LiveOffsets
from share_coordinator.core.share_states import ShareStates
from tidemark.model.share_state import DeliveryState, StateBatch

from sim.cluster.share_extent import LONG_MS
from sim.cluster.share_world import LOSSES_MS, ShareOptions
from sim.mutations import Change, changed

_acquire = SharePartition.acquire
_acknowledge = SharePartition.acknowledge
_loaded = SharePartition.loaded
_refused = acknowledgement._refused
_transition = acknowledgement._transition
_write = ShareStates.write
_read = ShareStates.read
_initialize = ShareStates.initialize
_settings_of = ShareSettings.of
_archiving = DeadLetters.archiving
_end_transaction = ShareStates.end_transaction


def _nothing(*_: Any, **__: Any) -> None:
    """Replace an action with nothing."""


async def _keep_no_owner(_deletion: Any, target: Any, *_: Any) -> Any:
    return target


def _acquired_is_acknowledged(spans: Any, window: Any) -> Any:
    for first, last in spans:
        for one in window.over(first, last):
            at, end = max(first, one.first), min(last, one.last)
            if one.transition is None and one.state is ACQUIRED:
                yield StateBatch(at, end, DeliveryState.ACKNOWLEDGED, one.count)
            elif one.transition is None and (one.count or one.is_finished):
                yield StateBatch(at, end, one.state, one.count)


def _start_of_the_delivered(window: Any) -> Any:
    """Take a record that was given back for a finished one."""
    for one in window:
        if one.transition is None and not one.is_finished and not one.count:
            return one.first
    return window.end


def _write_of_any_leader(states: Any, request: Any, wall_ms: int) -> Any:
    return _write(states, replace(request, leader_epoch=-1), wall_ms)


def _write_of_any_state(states: Any, request: Any, wall_ms: int) -> Any:
    state = states.of(request.key)
    if state is not None:
        request = replace(request, state_epoch=state.state_epoch)
    return _write(states, request, wall_ms)


def _counted_from_zero(share: Any, read: Any, **named: Any) -> Any:
    batches = tuple(
        one._replace(delivery_count=0) if one.delivery_state is DeliveryState.AVAILABLE else one
        for one in read.batches
    )
    return _loaded(share, replace(read, batches=batches), **named)


def _answer_before_the_write(share: Any, *args: Any, **named: Any) -> Any:
    answer = _acknowledge(share, *args, **named)
    return DONE if answer is None else answer


def _whoever_holds_it(window: Any, settings: Any, member: str, run: Any) -> Any:
    found = _refused(window, settings, member, run)
    is_other = found is not None and str(found.message).endswith(acknowledgement._NOT_OWNER)
    return None if is_other else found


def _without_a_limit(config: Any) -> Any:
    return replace(_settings_of(config), deliveries_max=1_000)


def _last_wins(batch: Any) -> Any:
    del batch
    return (0, 0)


def _keep_deliveries(states: Any, request: Any, wall_ms: int) -> Any:
    outcome = _initialize(states, request, wall_ms)
    state = states.of(request.key)
    if state is None or not outcome.records:
        return outcome
    record: Any = outcome.records[0]
    value = replace(record.value, batches=state.batches)
    return outcome._replace(records=(replace(record, value=value),))


def _acknowledged_twice(window: Any, settings: Any, member: str, run: Any) -> Any:
    found = _refused(window, settings, member, run)
    words = "" if found is None else str(found.message)
    is_repeated = words.endswith((acknowledgement._UNDER_WAY, acknowledgement._NOT_ACQUIRED))
    return None if is_repeated else found


def _without_pending(share: Any, read: Any, **named: Any) -> Any:
    return _loaded(share, replace(read, pending=()), **named)


def _keys_free_at_once(share: Any, member: str, batches: Any, *args: Any, **named: Any) -> Any:
    answer = _acknowledge(share, member, batches, *args, **named)
    order = share.window.order
    if answer is None and order is not None:
        for one in batches:
            order.left(one.first_offset, one.last_offset, ACQUIRED, ACKNOWLEDGED)
    return answer


def _whoever_asks(order: Any, offset: Any, member: str) -> bool:
    key_hash = order._hashes.get(offset)
    return key_hash is None or order._keys[key_hash].available[0] == offset


def _always_committed(states: Any, end: Any, wall_ms: int) -> Any:
    return _end_transaction(states, end._replace(commits=True), wall_ms)


def _nothing_archived(letters: Any, attempt: Any) -> Any:
    return replace(_archiving(letters, attempt), pending=())


def _archived_at_once(letters: Any, attempt: Any) -> Any:
    write = _archiving(letters, attempt)
    batches = tuple(StateBatch(*one[:4]) for one in write.pending)
    return replace(write, pending=(), batches=batches)


def _always_received(settings: Any, run: Any, piece: Any, now: Any) -> Any:
    return _transition(settings, run._replace(is_unseen=False), piece, now)


def _uncut(*_: Any) -> None:
    """The state of a log that has lost its end stays as it is."""


MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "writes locks as acknowledgements": (
        (state_writes, "_unwritten_batches", _acquired_is_acknowledged),
    ),
    "does not renew a lock": ((share_partition, "renew", _nothing),),
    "moves the start over what was given back": (
        (state_writes, "start_after", _start_of_the_delivered),
    ),
    "takes writes of an earlier leader": ((ShareStates, "write", _write_of_any_leader),),
    "delivers without its lease": ((SharePartitions, "may_deliver", lambda *_: True),),
    "takes writes of an earlier state": ((ShareStates, "write", _write_of_any_state),),
    "keeps a state beyond the end of its log": ((share_states, "cut_by", _uncut),),
    "counts from zero at a new leader": ((SharePartition, "loaded", _counted_from_zero),),
    "leaves what could not be written": ((SharePartition, "_roll_back", _nothing),),
    "closes a session and keeps its locks": ((SharePartitions, "_release", _nothing),),
    "takes the acknowledgement of another member": (
        (acknowledgement, "_refused", _whoever_holds_it),
    ),
    "answers an acknowledgement before it is written": (
        (SharePartition, "acknowledge", _answer_before_the_write),
    ),
    "delivers without a limit": ((ShareSettings, "of", _without_a_limit),),
    "lets a late write win": ((state_batches, "_rank", _last_wins),),
    "keeps the deliveries of a state that begins again": (
        (ShareStates, "initialize", _keep_deliveries),
    ),
    "deletes snapshots that are needed": ((LiveOffsets, "needed_from", lambda live: live.end),),
    "deletes the owner with the old state": ((RecordDeletion, "keep_owner", _keep_no_owner),),
    "forgets updates": ((share_state.ShareState, "updated", lambda state, _: state),),
    "applies an acknowledgement twice": ((acknowledgement, "_refused", _acknowledged_twice),),
    "drops pending acknowledgements at a new leader": (
        (SharePartition, "loaded", _without_pending),
    ),
    "ends every transaction with a commit": ((ShareStates, "end_transaction", _always_committed),),
    "copies dead letters without the archiving": ((DeadLetters, "archiving", _nothing_archived),),
    "archives dead letters outside of the transaction": (
        (DeadLetters, "archiving", _archived_at_once),
    ),
    "copies dead letters outside of the transaction": ((letter_copies, "TRANSACTIONAL_BIT", 0),),
    "delivers a delayed record at once": ((ShareSettings, "delay_ms", lambda *_: 0),),
    "counts deliveries that were never received": (
        (acknowledgement, "_transition", _always_received),
    ),
    "gives a key to several members": ((KeyOrder, "may_take", _whoever_asks),),
    "releases a key before the acknowledgement is written": (
        (SharePartition, "acknowledge", _keys_free_at_once),
    ),
}

_FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "takes writes of an earlier leader": ("pause_leader", "delay_coordinator"),
    "delivers without its lease": ("pause_leader",),
    "takes writes of an earlier state": ("delay_coordinator", "cut_coordinator"),
    "drops pending acknowledgements at a new leader": ("pause_leader", "kill"),
    "deletes the owner with the old state": ("lose_disk", "kill_state_leader"),
    "keeps a state beyond the end of its log": ("lose_end",),
}
"""Faults under which a mutation is found soon; all faults for mutations without an entry."""

_LENGTHS_MS: Final = {
    "takes writes of an earlier leader": 9_000,
    "delivers without its lease": 18_000,
    "deletes the owner with the old state": 8_000,
    "keeps a state beyond the end of its log": LOSSES_MS,
}
"""Longer runs than ``LONG_MS``: a leader must hold locks as it pauses, and go on after the next one
has read; the beginning of a state must be deleted, and a replica made anew from the rest; a
follower must be left behind, and lead.
"""

_OF_RESETS: Final = (
    "takes writes of an earlier state",
    "keeps the deliveries of a state that begins again",
)

_OF_KEYS: Final = (
    "gives a key to several members",
    "releases a key before the acknowledgement is written",
)
_OF_LETTERS: Final = (
    "copies dead letters without the archiving",
    "archives dead letters outside of the transaction",
    "copies dead letters outside of the transaction",
)
_OF_LOSSES: Final = ("keeps a state beyond the end of its log",)
_OF_TRANSACTIONS: Final = (
    "drops pending acknowledgements at a new leader",
    "ends every transaction with a commit",
)

BREAKS: Final[dict[str, tuple[str, ...]]] = {
    "writes locks as acknowledgements": ("only what a member accepts is acknowledged",),
    "does not renew a lock": ("a record has one lock",),
    "moves the start over what was given back": (
        "the start passes finished records only",
        "members hear what they understand",
    ),
    "takes writes of an earlier leader": ("a write of an earlier leader does not hold",),
    "delivers without its lease": ("an acknowledged record never comes again",),
    "takes writes of an earlier state": (
        "a delivery count has its deliveries",
        "a record whose acknowledgement was answered stays finished",
        "the start passes finished records only",
        "only what a member accepts is acknowledged",
    ),
    "keeps a state beyond the end of its log": (
        "the start passes finished records only",
        "an owner holds what the log says",
    ),
    "counts from zero at a new leader": ("every delivery raises the count",),
    "leaves what could not be written": (
        "members hear what they understand",
        "after healing every record is finished",
    ),
    "closes a session and keeps its locks": ("a session that is closed holds no lock",),
    "takes the acknowledgement of another member": ("only the holder of a lock acknowledges",),
    "answers an acknowledgement before it is written": (
        "an acknowledgement that is answered is kept",
    ),
    "delivers without a limit": ("the delivery count is within its limit",),
    "lets a late write win": ("an owner holds what the log says",),
    "keeps the deliveries of a state that begins again": ("a state begins without deliveries",),
    "deletes snapshots that are needed": ("an owner holds what the log says",),
    "deletes the owner with the old state": ("a leader knows the owner of its shard",),
    "forgets updates": ("an owner holds what the log says",),
    "applies an acknowledgement twice": ("only the holder of a lock acknowledges",),
    "drops pending acknowledgements at a new leader": ("an open transaction holds its records",),
    "ends every transaction with a commit": ("acknowledgements end as their transaction",),
    "copies dead letters without the archiving": (
        "each dead letter exactly once",
        "after healing every record is finished",
    ),
    "archives dead letters outside of the transaction": (
        "a dead letter is archived together with its copy",
    ),
    "copies dead letters outside of the transaction": ("each dead letter exactly once",),
    "delivers a delayed record at once": ("a delayed record is not delivered before its time",),
    "counts deliveries that were never received": (
        "a delivery counts unless its record was never received",
    ),
    "gives a key to several members": ("under key order no two members hold one key",),
    "releases a key before the acknowledgement is written": (
        "under key order the earlier records of a key are finished",
        "under key order no two members hold one key",
    ),
}
"""Promises that each mutation breaks; only a failure of one of these counts as found."""


def options_for(name: str) -> ShareOptions:
    """Return options of a run in which the mutation is found soon."""
    return ShareOptions(
        length_ms=_LENGTHS_MS.get(name, LONG_MS),
        faults=_FOUND_BY.get(name),
        has_reset=name in _OF_RESETS or None,
        has_keys=None if name in _OF_TRANSACTIONS else name in _OF_KEYS,
        has_transactions=name in _OF_TRANSACTIONS,
        has_letters=name in _OF_LETTERS,
        has_losses=name in _OF_LOSSES,
        has_repeats=name not in _FOUND_BY or name in _OF_TRANSACTIONS,
    )


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put one bug into the product."""
    with changed(MUTATIONS[name]):
        yield
