"""Result of a rule for one request."""

from typing import NamedTuple

from tidemark.codec.txn_records import TxnRecord

from txn_coordinator.core.requests import Reply


class Ruling(NamedTuple):
    """Records to write and the reply to send then. The shard adds the markers of the records."""

    reply: Reply
    records: tuple[TxnRecord, ...] = ()
