"""Exceptions of the client: one class for each failure that programs distinguish.

Each message names the failure, the place and a remedy.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from tidemark.model.errors import ErrorCode, TidemarkError

__all__ = [
    "AbortableTransactionError",
    "AuthenticationError",
    "AuthorizationError",
    "BufferFullError",
    "ClientClosedError",
    "ClientConfigError",
    "ClientError",
    "CommitFailedError",
    "ConcurrentTransactionsError",
    "ConnectionLostError",
    "CoordinatorNotAvailableError",
    "CorruptBatchError",
    "DeliveryTimeoutError",
    "DuplicateSequenceError",
    "DuplicateSequenceNumber",
    "FencedInstanceError",
    "GroupNotEmptyError",
    "GroupNotFoundError",
    "InvalidRecordStateError",
    "InvalidSequenceNumber",
    "InvalidTransactionStateError",
    "MessageTooLargeError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "RequestTimedOutError",
    "ShareSessionLostError",
    "TidemarkError",
    "TopicAlreadyExistsError",
    "TransactionalIdNotFoundError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "error_for",
]


class ClientError(TidemarkError):
    """Base of all exceptions of the client, with Kafka's ``code``, and ``where`` it occurred.

    ``message`` is ``what`` failed, the place, and ``advice``.
    """

    hint: ClassVar[str] = ""

    def __init__(self, code: ErrorCode, message: str, *, where: str = "", hint: str = "") -> None:
        advice = hint or self.hint
        place = f" at {where}" if where else ""
        self.what = message
        self.advice = advice
        super().__init__(code, f"{message}{place}" + (f"; {advice}" if advice else ""))
        self.where = where

    @property
    def retriable(self) -> bool:
        """True if the same call may succeed later."""
        return self.code.retriable


class UnknownTopicOrPartitionError(ClientError):
    """The topic or partition does not exist, or is not yet in the metadata of some brokers."""

    hint = "create the topic first (tidemark topic create) or check its name and partition count"


class NotLeaderError(ClientError):
    """The broker does not lead the partition, or no broker does. Retried until the deadline."""

    hint = "the partition has no reachable leader: check that its brokers are up"


class OffsetOutOfRangeError(ClientError):
    """The position is outside the log and auto_offset_reset is ``none``."""

    hint = (
        "seek to an offset between beginning_offsets() and end_offsets(), or set auto_offset_reset"
    )


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are no longer in the log: an unclean election replaced them by others
    (KIP-320), and auto_offset_reset is ``none``, or a range was read.
    """

    divergent_offset: int | None = None
    """First offset at which the log has, or will have, other records; None if it is not known."""
    hint = "seek to the offset from which to read what the log has now, or set auto_offset_reset"


class MessageTooLargeError(ClientError):
    """A record or batch exceeds max_request_size (client) or max.message.bytes (topic)."""

    hint = (
        "raise max.message.bytes on the topic or max_request_size here,"
        " lower batch_size, or send smaller records"
    )


class NotEnoughReplicasError(ClientError):
    """Fewer replicas are in sync than min.insync.replicas, with acks=all."""

    hint = "bring replicas back, or lower min.insync.replicas on the topic"


class OutOfOrderSequenceError(ClientError):
    """The broker found a gap in the producer's sequence numbers: an earlier batch is missing."""

    hint = (
        "earlier records are missing at the broker; later ones are sent under a new producer epoch"
    )


class DuplicateSequenceError(ClientError):
    """The batch is already in the log, too far back for the broker to return its offset."""

    hint = "the records are stored once; do not send them again"


InvalidSequenceNumber = OutOfOrderSequenceError
DuplicateSequenceNumber = DuplicateSequenceError


class ProducerFencedError(ClientError):
    """A newer epoch of this producer exists."""

    hint = (
        "another producer took over this identity, or its transaction ran out of time:"
        " create a new producer"
    )


class AbortableTransactionError(ClientError):
    """The open transaction cannot commit; after ``abort`` the next one may succeed (KIP-1050)."""

    hint = "abort() the transaction and do its work again"


class InvalidTransactionStateError(ClientError):
    """A transaction call is out of order, or its transaction has already ended."""

    hint = (
        "the order is begin(), send() and send_offsets(), then commit() or abort();"
        " an ended transaction cannot change"
    )


class ConcurrentTransactionsError(ClientError):
    """The transactional id has a transaction that is open, or still ending."""

    hint = "wait until it has ended, finish it by its handle, or ask to abort it"


class TransactionalIdNotFoundError(ClientError):
    """The transactional id does not exist, or the producer id no longer belongs to it."""

    hint = "it never wrote, or expired (transactional.id.expiration.ms)"


class CoordinatorNotAvailableError(ClientError):
    """The coordinator is moving, loading or without a leader. Retried until the deadline."""

    hint = (
        "check that the brokers leading __consumer_offsets and __transaction_state are up, and the"
        " txn-coordinators and share-coordinators"
    )


class CommitFailedError(ClientError):
    """An offset commit was refused: the member was fenced or has lost its partitions."""

    hint = (
        "the records since the last commit will be read again by the partitions' new owner;"
        " poll() to rejoin, and keep max_poll_interval_ms above the time between polls"
    )


class FencedInstanceError(ClientError):
    """Another live member of the group has this group_instance_id."""

    hint = "give each running consumer a group_instance_id of its own"


class GroupNotFoundError(ClientError):
    """The group does not exist."""

    hint = "check its name (tidemark group list)"


class GroupNotEmptyError(ClientError):
    """The group has members; only they may change its offsets."""

    hint = "stop the group's consumers first, and wait until their sessions ended"


class AuthenticationError(ClientError):
    """The broker refused the login, or could not prove that it is the broker."""

    hint = (
        "check sasl_username and sasl_password, and that the user has a credential for"
        " sasl_mechanism (tidemark user list)"
    )


class AuthorizationError(ClientError):
    """The principal lacks the permission."""

    hint = "grant the operation to this principal"


class TopicAlreadyExistsError(ClientError):
    """CreateTopics named an existing topic."""

    hint = "pick another name, or delete the topic first"


class UnsupportedVersionError(ClientError):
    """The client and the broker share no version of the API, or the broker does not serve it."""

    hint = "bring client and brokers to compatible releases"


class RequestTimedOutError(ClientError):
    """No response within the deadline; the outcome is unknown."""

    hint = "check the brokers' load and network, or raise the timeout"


class DeliveryTimeoutError(RequestTimedOutError):
    """A record was not acknowledged within delivery_timeout_ms; it may or may not be in the log."""

    hint = "check that the partition has a leader, or raise delivery_timeout_ms"


class ConnectionLostError(ClientError):
    """A broker is unreachable, or its connection closed with requests unanswered."""

    hint = "check the address and that the broker is up"


class BufferFullError(ClientError):
    """buffer_memory is full, and the caller does not wait or has waited for max_block_ms."""

    hint = "await send() or enqueue() instead, raise buffer_memory, or send more slowly"


class CorruptBatchError(ClientError):
    """A batch failed its checksum or cannot be decoded."""

    hint = "read on with seek() past it; run the broker's scrubber on the partition"


class InvalidRecordStateError(ClientError):
    """An acknowledgement came too late: the record's lock ended, or belongs to another consumer."""

    hint = (
        "process records within the group's share.record.lock.duration.ms, or renew their locks:"
        " these records are delivered again"
    )


class ShareSessionLostError(ClientError):
    """The broker ended the share session, and released the records that were acquired in it."""

    hint = "poll again; records that were not acknowledged before are delivered again"


class ClientClosedError(ClientError):
    """The client is closed, or was never started."""

    hint = "use it inside `async with`, or call start() first"


class ClientConfigError(ClientError):
    """A setting is unknown, out of range, or contradicts another setting."""


_CLASSES: Final[Mapping[ErrorCode, type[ClientError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicOrPartitionError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeaderError,
    ErrorCode.LEADER_NOT_AVAILABLE: NotLeaderError,
    ErrorCode.FENCED_LEADER_EPOCH: NotLeaderError,
    ErrorCode.UNKNOWN_LEADER_EPOCH: NotLeaderError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: MessageTooLargeError,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicasError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceError,
    ErrorCode.UNKNOWN_PRODUCER_ID: OutOfOrderSequenceError,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: DuplicateSequenceError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExistsError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.NETWORK_EXCEPTION: ConnectionLostError,
    ErrorCode.BROKER_NOT_AVAILABLE: ConnectionLostError,
    ErrorCode.CORRUPT_MESSAGE: CorruptBatchError,
    ErrorCode.INVALID_CONFIG: ClientConfigError,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorNotAvailableError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorNotAvailableError,
    ErrorCode.NOT_COORDINATOR: CoordinatorNotAvailableError,
    ErrorCode.ILLEGAL_GENERATION: CommitFailedError,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailedError,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitFailedError,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.STALE_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceError,
    ErrorCode.UNRELEASED_INSTANCE_ID: FencedInstanceError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFoundError,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmptyError,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupNotEmptyError,
    ErrorCode.INVALID_RECORD_STATE: InvalidRecordStateError,
    ErrorCode.SHARE_SESSION_NOT_FOUND: ShareSessionLostError,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: ShareSessionLostError,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: ShareSessionLostError,
    ErrorCode.INVALID_TXN_STATE: InvalidTransactionStateError,
    ErrorCode.TRANSACTION_ABORTABLE: AbortableTransactionError,
    ErrorCode.CONCURRENT_TRANSACTIONS: ConcurrentTransactionsError,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: TransactionalIdNotFoundError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: TransactionalIdNotFoundError,
}


def error_for(
    number: int, message: str, *, where: str = "", detail: str | None = None
) -> ClientError:
    """Return the exception for a broker's error number.

    ``message`` names the attempt, ``where`` the broker or partition; ``detail`` is the broker's
    text.
    """
    code = ErrorCode(number)
    text = message + (f": {detail}" if detail else "")
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
        text += f" (error {number}, unknown to this client)"
    return _CLASSES.get(code, ClientError)(code, text, where=where)
