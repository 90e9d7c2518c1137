"""The transactional workload of a run: writers, two copiers, a reader that follows, and what all of
them know at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

from chaos.cluster import NotHealedError, wait_none
from chaos.copying import Copiers
from chaos.follow import COMMITTED, UNCOMMITTED, TransactionReader, read_all
from chaos.history import Partition
from chaos.load import end_offsets
from chaos.topics import (
    COPY,
    COPY_PARTITIONS,
    OFFSETS_PARTITIONS,
    SOURCE,
    STATE_PARTITIONS,
    TRANSACTIONAL_PARTITIONS,
)
from chaos.transactions import Bounds, Outcome, TransactionHistory
from chaos.txn_load import LibrdkafkaWriter, NativeWriter, TransactionWriter

_WRITERS: Final[Mapping[str, type[TransactionWriter]]] = {
    "chaos-v1-1": LibrdkafkaWriter,
    "chaos-v1-2": LibrdkafkaWriter,
    "chaos-v2-1": NativeWriter,
    "chaos-v2-2": NativeWriter,
}
"""By transactional id."""
THREADS: Final = len(_WRITERS) + 2
_RATE: Final = 15.0
"""Transactions a second of one writer, at most."""
FOLLOWED: Final = TRANSACTIONAL_PARTITIONS + COPY_PARTITIONS
_BOUNDED: Final = (*FOLLOWED, *OFFSETS_PARTITIONS, *STATE_PARTITIONS)
_FINISH_S: Final = 300.0
_ANSWER_S: Final = 300.0

Say = Callable[[str], None]


class ExactlyOnce:
    """Started with the cluster whole, finished with the cluster healed."""

    def __init__(self, pool: ThreadPoolExecutor, bootstrap: str, seed: int, tell: Say) -> None:
        self._pool, self._bootstrap, self._tell = pool, bootstrap, tell
        self.reader = TransactionReader(bootstrap, FOLLOWED, COMMITTED)
        self.copiers = Copiers(bootstrap, seed, tell)
        self.writers: list[TransactionWriter] = [
            kind(name, bootstrap, TRANSACTIONAL_PARTITIONS, _RATE)
            for name, kind in _WRITERS.items()
        ]
        self.problems: list[str] = []
        """What did not come to its end in time."""
        self._writing: list[Future[None]] = []
        self._futures: list[Future[None]] = []

    def start(self) -> None:
        """Begin to write, copy and follow."""
        self._writing = [self._pool.submit(one.run, _FINISH_S) for one in self.writers]
        self._futures = [self._pool.submit(one.run) for one in (self.copiers, self.reader)]

    def check(self) -> None:
        """Raise what ended a thread."""
        for future in (*self._writing, *self._futures):
            if future.done():
                future.result()

    def stop(self) -> None:
        """All of it."""
        for writer in self.writers:
            writer.stop()
        self.copiers.stop()
        self.reader.stop()

    def stop_writing(self) -> None:
        """And wait for the end of the last transaction; the copy goes on."""
        self.copiers.calm()
        for writer in self.writers:
            writer.stop()
        wait(self._writing, return_when=FIRST_EXCEPTION)
        self.check()

    def outcomes(self, outcome: Outcome) -> int:
        """How many transactions had it."""
        transactions = (one for writer in self.writers for one in writer.transactions)
        return sum(one.outcome is outcome for one in transactions)

    def finish(self) -> TransactionHistory:
        """Once nobody writes: let the copy come to its end, then read everything."""
        history = TransactionHistory(source=SOURCE, copy=COPY)
        for writer in self.writers:
            history.transactions += writer.transactions
        ends = _stable(self._settle(TRANSACTIONAL_PARTITIONS))
        self._wait(lambda: self._lags(ends), "the copy")
        self.copiers.stop()
        self._futures[0].result()
        history.bounds = self._settle(_BOUNDED)
        ends = {one: end for one, end in _stable(history.bounds).items() if one in FOLLOWED}
        history.committed = read_all(self._bootstrap, ends, COMMITTED, _ANSWER_S)
        history.uncommitted = read_all(self._bootstrap, ends, UNCOMMITTED, _ANSWER_S)
        self._wait(lambda: self.reader.behind(ends), "the committed reader's catching up")
        self.reader.stop()
        self._futures[1].result()
        history.followed = self.reader.seen
        return history

    def _lags(self, ends: Mapping[Partition, int]) -> list[str]:
        """What the copy lacks, as the reader that follows sees it."""
        self.check()
        behind = self.reader.behind(ends)
        if behind:
            return behind
        inputs, copies = self.reader.values(SOURCE), self.reader.values(COPY)
        missing = len(inputs - copies)
        return [f"{missing} of {len(inputs)} inputs are not copied"] if missing else []

    def _settle(self, partitions: Sequence[Partition]) -> dict[Partition, Bounds]:
        """Wait until no transaction is open, or every timeout is long over: the bounds then."""
        found: dict[Partition, Bounds] = {}

        def hanging() -> list[str]:
            self.check()
            stable = end_offsets(self._bootstrap, partitions, _ANSWER_S, COMMITTED)
            ends = end_offsets(self._bootstrap, partitions, _ANSWER_S, UNCOMMITTED)
            found.update({one: Bounds(stable[one], ends[one]) for one in partitions})
            return [f"{one}: {bounds}" for one, bounds in found.items() if bounds[0] < bounds[1]]

        # Those that are left are told of as hanging transactions.
        with suppress(NotHealedError):
            wait_none(hanging, "the end of all transactions", _FINISH_S)
        return found

    def _wait(self, wounds: Callable[[], list[str]], what: str) -> None:
        try:
            took_s = wait_none(wounds, what, _FINISH_S)
        except NotHealedError as problem:
            self._tell(f"not healed: {problem}")
            self.problems.append(str(problem))
        else:
            self._tell(f"{what}: {took_s:.1f} s")


def _stable(bounds: Mapping[Partition, Bounds]) -> dict[Partition, int]:
    return {partition: one.last_stable for partition, one in bounds.items()}
