"""Deliberate bugs, one at a time: the simulator must find each of them.

A mutation changes the product, never the simulator. Its name is the promise that it breaks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker.core import producers
from broker.core.commitment import Commitment
from broker.core.producers import ACCEPTED, ProducerTable
from broker.storage import recovery, stamp
from broker.storage.compaction import _Round
from broker.storage.log import Log
from broker.storage.offset_checkpoints import OffsetCheckpoints
from broker.storage.offset_index import OffsetIndex
from broker.storage.recovery import _Scan
from broker.storage.segment import Segment
from broker.storage.segment_chain import SegmentChain

Change = tuple[Any, str, Any]
"""Owner, attribute, and replacement with the parameters of the original."""


def _nothing(*_: Any, **__: Any) -> None:
    """Replace an action with nothing."""


_read = Log.read
_map_batch = _Round._map_batch
_decode = OffsetIndex.decode
_damaged = _Scan._damaged


def _read_to_the_end(log: Log, offset: int, bytes_max: int, *, end: int) -> Any:
    del end
    return _read(log, offset, bytes_max, end=log.log_end)


def _map_one_too_far(cleaning: _Round, walked: Any) -> None:
    before = dict(cleaning._offsets)
    _map_batch(cleaning, walked)
    for key, offset in cleaning._offsets.items():
        if before.get(key) != offset:
            cleaning._offsets[key] = offset + 1


def _decode_everything(content: bytes, log_bytes: int) -> OffsetIndex:
    del log_bytes
    return _decode(content, 1 << 40)


def _damage_is_a_torn_tail(scan: _Scan, segment: Segment, error: Any) -> bool:
    scan._cut(segment, error.position, error.what)
    return False


MUTATIONS: Final[dict[str, tuple[Change, ...]]] = {
    "acknowledges before the sync": ((Commitment, "acknowledgeable", lambda *_, **__: True),),
    "does not cut a torn batch": ((_Scan, "_cut", _nothing),),
    "forgets the producers": (
        (ProducerTable, "replay", _nothing),
        (ProducerTable, "restore", _nothing),
    ),
    "takes a repeat for a new batch": ((producers, "_out_of_turn", lambda *_: ACCEPTED),),
    "serves beyond the high watermark": ((Log, "read", _read_to_the_end),),
    "trusts an index beyond the log's end": (
        (OffsetIndex, "decode", staticmethod(_decode_everything)),
        (_Scan, "_prepare_indexes", _nothing),
        (Segment, "begins_batch", lambda *_: True),
    ),
    "does not keep DeleteRecords": ((OffsetCheckpoints, "save_log_starts", _nothing),),
    "compacts the last value away": ((_Round, "_map_batch", _map_one_too_far),),
    "leaves half a batch on a full disk": ((SegmentChain, "_undo", _nothing),),
    "serves a foreign disk": ((stamp, "check_stamp", _nothing),),
    "takes damage for a torn tail": ((_Scan, "_damaged", _damage_is_a_torn_tail),),
    "believes a damaged header": ((_Scan, "_require_synced", _nothing),),
    "does not write again what a failed sync left out": ((recovery, "rewrite", _nothing),),
}


FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "leaves half a batch on a full disk": ("fill_disk", "kill", "stop_cleanly"),
    "takes damage for a torn tail": ("flip_synced", "roll"),
    "believes a damaged header": ("flip_synced",),
    "does not write again what a failed sync left out": ("fail_syncs", "lose_power"),
}
"""Faults under which a mutation is found soon; all faults for mutations without an entry."""


BREAKS: Final[dict[str, tuple[str, ...]]] = {
    "acknowledges before the sync": ("flush=group keeps what it acknowledged",),
    "does not cut a torn batch": (
        "an answer holds whole batches",
        "recovery cuts at a batch, and adds none",
    ),
    "forgets the producers": ("no producer is forgotten",),
    "takes a repeat for a new batch": ("sequences are in order, each once",),
    "serves beyond the high watermark": ("nothing beyond the high watermark is served",),
    "trusts an index beyond the log's end": (
        "synced records survive power loss",
        "kill -9 loses nothing",
    ),
    "does not keep DeleteRecords": ("the log start survives kill -9",),
    "compacts the last value away": ("compaction keeps each key's last value",),
    "leaves half a batch on a full disk": ("a clean stop leaves nothing to recover",),
    "serves a foreign disk": ("a foreign disk is refused",),
    "takes damage for a torn tail": ("damaged synced bytes are never cut",),
    "believes a damaged header": ("damaged synced bytes are never cut",),
    "does not write again what a failed sync left out": (
        "synced records survive power loss",
        "a crash is not damage",
        "no record is skipped",
    ),
}
"""Promises that each mutation breaks; only a failure of one of these counts as found."""


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put one bug into the product."""
    with changed(MUTATIONS[name]):
        yield


@contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """Replace attributes of the product, and restore them at the end."""
    kept = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in changes]
    try:
        for owner, attribute, new in changes:
            setattr(owner, attribute, new)
        yield
    finally:
        for owner, attribute, old in kept:
            setattr(owner, attribute, old)
