"""Transactions from outside of the cluster, some aborted, and what read_committed must show."""

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from waiting import PATIENCE_S

PARTITIONS: Final = 3
_ABORTED_EVERY: Final = 3
_PAUSE_S: Final = 0.02


class Transactions:
    """A producer that writes its number to every partition in one transaction, until stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.committed: list[bytes] = []
        self.fatal: list[str] = []
        self.taken_back = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": topic,
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 60_000,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions")

    def __enter__(self) -> "Transactions":
        self._producer.init_transactions(PATIENCE_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

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
        found = [self._read(partition) for partition in range(PARTITIONS)]
        assert found == [self.committed] * PARTITIONS

    def _read(self, partition: int) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self._topic, partition, 0)])
        values: list[bytes] = []
        try:
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"partition {partition}: no end"
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return values
                assert error is None or error.retriable(), error
                if error is None:
                    values.append(message.value() or b"")
        finally:
            consumer.close()
