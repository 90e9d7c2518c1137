"""What a rule says of one request."""

from typing import NamedTuple

from tidemark.codec.txn_records import TxnRecord

from txn_coordinator.core.requests import Reply


class Ruling(NamedTuple):
    """Write these records, then answer; the shard adds the markers of what is decided by them."""

    reply: Reply
    records: tuple[TxnRecord, ...] = ()
