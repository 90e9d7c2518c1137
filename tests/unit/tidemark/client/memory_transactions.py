"""A transaction coordinator in memory beside the group's: transactions v2 as clients meet them."""

from dataclasses import dataclass
from typing import Any

from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.memory_groups import MemoryGroups
from unit.tidemark.client.memory_transport import MemoryLog, MemoryTransport


@dataclass
class Transactional:
    producer_id: int
    epoch: int = 0
    ended: tuple[int, bool] | None = None  # epoch and outcome of the last end


class MemoryTransactions(MemoryGroups):
    """``outcomes``: each end that was decided, as (transactional id, epoch, committed)."""

    def __init__(self, cluster: MemoryTransport) -> None:
        super().__init__(cluster)
        self.ids: dict[str, Transactional] = {}
        self.outcomes: list[tuple[str, int, bool]] = []
        self.pending: list[tuple[TopicPartition, int]] = []
        self.handlers |= {
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.END_TXN: self._end,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
        }

    def _init(self, request: Any) -> dict[str, Any]:
        one = self.ids.setdefault(request.transactional_id, Transactional(70 + len(self.ids), -1))
        one.epoch += 1
        return {"producer_id": one.producer_id, "producer_epoch": one.epoch}

    def _end(self, request: Any) -> dict[str, Any]:
        one = self.ids[request.transactional_id]
        if one.ended != (request.producer_epoch, request.committed):
            if request.producer_epoch != one.epoch:
                return {"error_code": ErrorCode.PRODUCER_FENCED}
            one.ended = (one.epoch, request.committed)
            self.outcomes.append((request.transactional_id, one.epoch, request.committed))
            one.epoch += 1
            self._write_markers(one, commit=request.committed)
            if request.committed:
                self.offsets |= {part: (offset, "") for part, offset in self.pending}
            self.pending = []
        return {"producer_id": one.producer_id, "producer_epoch": one.epoch}

    def _write_markers(self, one: Transactional, *, commit: bool) -> None:
        for log in self.cluster.logs.values():
            if not _has_open(log, one.producer_id):
                continue
            log.append_control(
                build_marker(
                    EndTxnMarker(commit, 0),
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                    timestamp=0,
                )
            )

    def _commit_offsets(self, request: Any) -> dict[str, Any]:
        one = self.ids[request.transactional_id]
        code = ErrorCode.NONE
        if request.member_id and request.member_id not in self.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif request.producer_epoch != one.epoch:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        topics = []
        for topic in request.topics:
            parts = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
            offsets = [each.committed_offset for each in topic.partitions]
            if not code:
                self.pending += zip(parts, offsets, strict=True)
            codes = [{"partition_index": each.partition, "error_code": code} for each in parts]
            topics.append({"name": topic.name, "partitions": codes})
        return {"topics": topics}


def _has_open(log: MemoryLog, producer_id: int) -> bool:
    own = [header for header in log.headers() if header.producer_id == producer_id]
    return bool(own) and not own[-1].is_control
