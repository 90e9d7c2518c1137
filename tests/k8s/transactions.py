"""Transactions from outside of the cluster, some aborted, and what read_committed must show."""

from collections.abc import Callable
from functools import partial
from typing import Final, Self

from confluent_kafka import KafkaException, Producer
from k8s.load import Background, read_partition
from k8s.release import Client
from waiting import PATIENCE_S

PARTITIONS: Final = 3
_ABORTED_EVERY: Final = 3
_PAUSE_S: Final = 0.02


class Transactions(Background):
    """A producer that writes its number to every partition in one transaction, until stopped."""

    def __init__(self, client: Client, topic: str) -> None:
        super().__init__("transactions")
        self.committed: list[bytes] = []
        self.fatal: list[str] = []
        self.taken_back = 0
        self._client = client
        self._topic = topic
        self._producer = Producer(
            {
                **client,
                "transactional.id": topic,
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 60_000,
            }
        )

    def __enter__(self) -> Self:
        self._producer.init_transactions(PATIENCE_S)
        return super().__enter__()

    def _run(self) -> None:
        number = 0
        try:
            while not self._ended.wait(_PAUSE_S):
                value = str(number).encode()
                if self._transaction(value, commit=number % _ABORTED_EVERY > 0):
                    self.committed.append(value)
                number += 1
        except KafkaException as error:
            self.fatal.append(str(error))

    def _transaction(self, value: bytes, *, commit: bool) -> bool:
        """Return True once a transaction is committed, False once it is aborted."""
        try:
            self._producer.begin_transaction()
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, value, partition=partition)
            if commit:
                self._until_answered(lambda: self._producer.commit_transaction(PATIENCE_S))
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.taken_back += 1
        self._until_answered(lambda: self._producer.abort_transaction(PATIENCE_S))
        return False

    @staticmethod
    def _until_answered(call: Callable[[], None]) -> None:
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def check(self) -> None:
        """Fail unless each partition has each committed number once, in order, and no other."""
        assert self.fatal == []
        read = partial(read_partition, self._client, self._topic, isolation="read_committed")
        assert [read(partition) for partition in range(PARTITIONS)] == [self.committed] * PARTITIONS
