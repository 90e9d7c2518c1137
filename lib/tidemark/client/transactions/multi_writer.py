"""Multi-writer transactions: several processes write, and any process may commit.

    one process               several others                          any process
    begin_transaction(id) --> handle.enlist("task-3") --> Writer      handle.finish(commit=True,
      str(handle)               writer.send(...), flush()                writers=[receipt, ...])
                                str(writer.receipt())   ----------->

Each writer has a producer id of its own, so that writers do not depend on one another. A commit
names the receipts that count. Records of all other writers are aborted, including those of earlier
writers in the same slot. A repeated request returns the same answer.
"""

import base64
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

from tidemark_wire.v1 import txn_pb2

from tidemark.client.config import ClientConfig, ProducerConfig, kafka_login, with_settings
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError
from tidemark.client.producer.producer import Producer
from tidemark.client.security_config import SecurityConfig
from tidemark.client.transactions.control import CoordinatorCalls
from tidemark.client.wire.session import Session, SessionClient, grpc_kafka_addresses
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

_HANDLE_PREFIX = "tidemark-transaction-1."
_RECEIPT_PREFIX = "tidemark-writer-1."


class MalformedTokenError(ClientError):
    """The text is not a handle or receipt, or one of a later release."""

    hint = "pass the str of a handle or receipt unchanged"


class WriterReceipt(NamedTuple):
    """Proof of what one writer wrote, for the commit. Processes exchange its ``str``."""

    writer: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return _token(_RECEIPT_PREFIX, list(self))

    @classmethod
    def parse(cls, token: str) -> "WriterReceipt":
        """Parse the ``str`` of a receipt. Raises MalformedTokenError."""
        return cls(*_untoken(_RECEIPT_PREFIX, token, 3))


class TransactionClient(SessionClient):
    """Base of clients of the transaction coordinator, whose bootstrap servers are gRPC addresses.

    ``settings`` are fields of ClientConfig by name; ``kafka_security`` is also that of writers.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ClientConfig | None = None,
        *,
        clock: Clock | None = None,
        default_api_timeout_ms: int = 60_000,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or ClientConfig(), {**settings, "transport": "grpc"})
        self.clock = clock or Clock()
        self._timeout_ms = default_api_timeout_ms
        self._session = Session(bootstrap_servers, self.config, self.clock)
        self.calls = CoordinatorCalls(self._session, self.config, self.clock)

    def deadline(self, allowed_ms: int | None = None) -> Deadline:
        """Return the deadline of one call."""
        wanted = self._timeout_ms if allowed_ms is None else allowed_ms
        return Deadline.after(wanted, self.clock.now_ms())

    async def kafka_addresses(self) -> list[str]:
        """Return the addresses of the Kafka listeners, to which records are sent."""
        return await grpc_kafka_addresses(self._session)


class Transactions(TransactionClient):
    """Multi-writer transactions: ``async with Transactions("host:9292") as transactions``."""

    async def begin_transaction(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        abort_previous: bool = False,
    ) -> "TransactionHandle":
        """Open a transaction, which the coordinator aborts after ``timeout_ms``.

        An open transaction under this id is aborted first with ``abort_previous``; otherwise it
        raises ConcurrentTransactionsError.
        """
        request = txn_pb2.BeginTransactionRequest(
            caller=self.calls.caller(),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            abort_previous=abort_previous,
            attempt_id=uuid.uuid4().bytes,  # a retry must not meet the transaction that it began
        )
        answer = await self.calls.until(
            # Wait for a transaction that is ending, not for one that is open.
            self.deadline() if abort_previous else self.deadline(self.config.request_timeout_ms),
            f"beginning a transaction of {transactional_id!r}",
            lambda stub, timeout: stub.BeginTransaction(request, timeout=timeout),
        )
        return TransactionHandle(self, transactional_id, answer.handle)

    def resume(self, token: str) -> "TransactionHandle":
        """Return the handle of a transaction from its ``str``. Raises MalformedTokenError."""
        return TransactionHandle(self, *_untoken(_HANDLE_PREFIX, token, 2))


class TransactionHandle:
    """Handle of a multi-writer transaction; other processes ``resume`` its ``str``."""

    def __init__(self, transactions: Transactions, transactional_id: str, handle: str) -> None:
        self.transactional_id = transactional_id
        self._transactions = transactions
        self._handle = handle

    def __str__(self) -> str:
        return _token(_HANDLE_PREFIX, [self.transactional_id, self._handle])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionHandle) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    async def enlist(
        self, writer: str, config: ProducerConfig | None = None, **settings: Any
    ) -> "Writer":
        """Enlist a writer in the transaction, in the slot named ``writer``.

        Enlisting the same slot again fences its previous writer. Use the writer with ``async
        with``, or ``start`` it. Raises InvalidTransactionStateError once the outcome is decided.
        """
        request = txn_pb2.EnlistWriterRequest(
            caller=self._transactions.calls.caller(), handle=self._handle, writer=writer
        )
        answer = await self._transactions.calls.until(
            self._transactions.deadline(),
            f"enlisting writer {writer!r} of {self.transactional_id!r}",
            lambda stub, timeout: stub.EnlistWriter(request, timeout=timeout),
        )
        receipt = WriterReceipt(writer, answer.producer_id, answer.producer_epoch)
        addresses = await self._transactions.kafka_addresses()
        inherited = inherited_by_writers(self._transactions.config, self.transactional_id)
        return Writer(addresses, config, receipt=receipt, **(inherited | settings))

    async def finish(
        self, *, commit: bool, writers: Iterable["Writer | WriterReceipt"] = ()
    ) -> bool:
        """End the transaction: commit the records of ``writers`` and abort all others, or abort
        all.

        Returns True if it was committed. Repeating the request, from any process, returns the same
        answer; requesting the opposite raises InvalidTransactionStateError. Once the outcome is no
        longer known, TransactionalIdNotFoundError is raised. Flush the writers before.
        """
        receipts = [each.receipt() if isinstance(each, Writer) else each for each in writers]
        request = txn_pb2.FinishTransactionRequest(
            caller=self._transactions.calls.caller(),
            handle=self._handle,
            commit=commit,
            writers=[
                txn_pb2.FinishTransactionRequest.Writer(
                    writer=each.writer,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                )
                for each in receipts
            ],
        )
        answer = await self._transactions.calls.until(
            self._transactions.deadline(),
            f"finishing the transaction of {self.transactional_id!r}",
            lambda stub, timeout: stub.FinishTransaction(request, timeout=timeout),
        )
        return bool(answer.committed)


class Writer(Producer):
    """Producer whose records belong to one multi-writer transaction.

    After a record has failed, leave the writer out of the commit, or enlist its slot again and
    write all records again.
    """

    _TRANSACTIONAL: ClassVar[bool] = True

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        receipt: WriterReceipt,
        **settings: Any,
    ) -> None:
        super().__init__(bootstrap_servers, config, **settings)
        self.failure: ClientError | None = None
        """Reason why this writer must not be committed."""
        self._receipt = receipt
        self._accumulator.on_failed = self._on_failed
        self._accumulator.renew(ProducerIdentity(receipt.producer_id, receipt.producer_epoch))

    def receipt(self) -> WriterReceipt:
        """Return the receipt for ``finish``.

        Raises the failure of an unwritten record, so that a writer with a gap cannot be committed.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._accumulator.statistics().records_unresolved:
            raise ClientError(
                ErrorCode.INVALID_TXN_STATE,
                f"writer {self._receipt.writer!r} has records that are not acknowledged",
                hint="await flush() first",
            )
        return self._receipt

    def _check_sendable(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def _on_failed(self, problem: ClientError) -> None:
        if self.failure is None:
            self.failure = problem
            self._accumulator.cut(problem)


def inherited_by_writers(config: ClientConfig, transactional_id: str) -> dict[str, Any]:
    """Return the settings that a writer has from the client that enlists it."""
    own = {"transactional_id": transactional_id, "client_id": config.client_id}
    login = kafka_login(config)
    if login.security_protocol == "PLAINTEXT":
        return own
    return own | {each.name: getattr(login, each.name) for each in fields(SecurityConfig)}


def _token(prefix: str, parts: list[Any]) -> str:
    packed = json.dumps(parts, separators=(",", ":")).encode()
    return prefix + base64.urlsafe_b64encode(packed).decode()


def _untoken(prefix: str, token: str, count: int) -> list[Any]:
    if token.startswith(prefix):
        try:
            parts = json.loads(base64.urlsafe_b64decode(token[len(prefix) :]))
        except ValueError:
            parts = None
        if isinstance(parts, list) and len(parts) == count:
            return parts
    raise MalformedTokenError(
        ErrorCode.INVALID_REQUEST, f"{token[:40]!r} is not a {prefix.rsplit('-', 1)[0]} token"
    )
