"""Views of the share-partitions at brokers, for the history: calls of the product are observed as
they are made, and their results are not changed.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from broker.core.share.acknowledgement import AcknowledgementBatch, AcknowledgeType
from broker.core.share.share_partition import SharePartition
from broker.shell.share.share_partitions import SharePartitions
from tidemark.model.errors import ErrorCode
from tidemark.model.share_state import TransactionKey

from sim.cluster.share_history import ShareHistory, Term
from sim.mutations import Change

Run = tuple[int, int, AcknowledgeType]


def watched(history: ShareHistory) -> list[Change]:
    """Return the changes that let a history see every share-partition of every broker."""
    watch = _Watch(history)
    return [
        (SharePartition, name, getattr(watch, name)(getattr(SharePartition, name)))
        for name in ("loaded", "acquire", "acknowledge", "release", "next_write", "written")
    ] + [
        (SharePartitions, name, watch.closing(getattr(SharePartitions, name)))
        for name in ("close", "connection_lost")
    ]


class _Watch:
    def __init__(self, history: ShareHistory) -> None:
        self._history = history
        self._terms: WeakKeyDictionary[SharePartition, Term] = WeakKeyDictionary()

    def loaded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A term begins."""

        def loaded(share: SharePartition, read: Any, **named: Any) -> Any:
            answer = original(share, read, **named)
            if answer.error_code is ErrorCode.NONE:
                counts = {
                    offset: batch.delivery_count
                    for batch in read.batches
                    for offset in range(batch.first_offset, batch.last_offset + 1)
                }
                self._terms[share] = self._history.loads(
                    share.key,
                    read.state_epoch,
                    counts,
                    leader_epoch=share.leader_epoch,
                    unseen_max=share.settings.unseen_max,
                )
            return answer

        return loaded

    def acquire(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Records are delivered."""

        def acquire(share: SharePartition, read: Any, wanted: Any, now: int) -> Any:
            found = original(share, read, wanted, now)
            for first, last, count in found:
                self._history.acquires(
                    self._terms[share],
                    wanted.member,
                    first,
                    last,
                    count,
                    now=now,
                    lock_ms=share.settings.lock_ms,
                )
            return found

        return acquire

    def acknowledge(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Acknowledgements are taken, all of a request or none."""

        def acknowledge(
            share: SharePartition,
            member: str,
            batches: Sequence[AcknowledgementBatch],
            token: Any,
            now: int,
            **named: Any,
        ) -> Any:
            start = share.window.start
            answer = original(share, member, batches, token, now, **named)
            if answer is None or answer.error_code is ErrorCode.NONE:
                runs = [run for one in batches for run in _runs(one, start)]
                self._given_back(share, batches, start, now)
                self._taken(share, member, runs, now, named.get("transaction"))
            return answer

        return acknowledge

    def _given_back(
        self, share: SharePartition, batches: Sequence[AcknowledgementBatch], start: int, now: int
    ) -> None:
        """Note releases with Tidemark's own fields."""
        term = self._terms.get(share)
        if term is None:
            return
        for one in batches:
            ready_at = now + min(one.delay_ms, share.settings.release_backoff_max_ms)
            released = [run for run in _runs(one, start) if run[2] is AcknowledgeType.RELEASE]
            for first, last, _ in released if one.is_unseen or one.delay_ms else ():
                for offset in range(first, last + 1):
                    if one.is_unseen:
                        term.give_backs.returns(offset, term.counts[offset])
                    else:
                        term.give_backs.delays(offset, term.counts[offset], ready_at)

    def _taken(
        self,
        share: SharePartition,
        member: str,
        runs: list[Run],
        now: int,
        transaction: TransactionKey | None,
    ) -> None:
        term = self._terms.get(share)
        if term is None:
            return
        renewed = [run[:2] for run in runs if run[2] is AcknowledgeType.RENEW]
        self._history.renews(term, member, renewed, now + share.settings.lock_ms)
        others = [run for run in runs if run[2] is not AcknowledgeType.RENEW]
        self._history.takes(term, member, others, transaction)

    def release(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A member's locks end."""

        def release(share: SharePartition, member: str, now: int, *rest: Any) -> None:
            original(share, member, now, *rest)
            term = self._terms.get(share)
            if term is not None:
                self._history.releases(term, member)

        return release

    def next_write(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A write is sent."""

        def next_write(share: SharePartition, now: int) -> Any:
            found = original(share, now)
            term = self._terms.get(share)
            if found is not None and term is not None:
                self._history.begins_write(term)
            return found

        return next_write

    def written(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A write is answered."""

        def written(share: SharePartition, code: ErrorCode, *rest: Any, **named: Any) -> Any:
            term = self._terms.get(share)
            if term is not None:
                self._history.has_written(term, holds=code is ErrorCode.NONE)
            return original(share, code, *rest, **named)

        return written

    def closing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A session ends: its member holds nothing here any longer."""

        def close(shares: SharePartitions, of: Any) -> None:
            ending = [
                one
                for one in shares.sessions._sessions.values()
                if one is of or one.connection is of
            ]
            original(shares, of)
            for session in ending:
                group_id, member = session.key
                for held in shares.of_group(group_id):
                    term = self._terms.get(held.share)
                    if term is not None:
                        self._history.has_closed(term, member)

        return close


def _runs(batch: AcknowledgementBatch, start: int) -> list[Run]:
    """Return the runs of one type, without offsets below the window."""
    first, last, types = batch.first_offset, batch.last_offset, batch.types
    each = [
        (first + at, AcknowledgeType(types[at] if len(types) > 1 else types[0]))
        for at in range(last - first + 1)
        if first + at >= start
    ]
    found: list[Run] = []
    for kind, run in groupby(each, key=lambda one: one[1]):
        offsets = [offset for offset, _ in run]
        found.append((offsets[0], offsets[-1], kind))
    return found
