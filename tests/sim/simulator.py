"""The simulator: one node, its disk, its clients, its faults; one clock, one queue, one seed."""

import contextlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Final

from broker.storage.compaction import CleaningResult
from broker.storage.flush import FlushRound
from tidemark.codec.record_batch import HEADER_BYTES, iterate_headers
from tidemark.codec.records import read_records
from tidemark.model.ids import InstantMs, TopicId
from tidemark.model.topic_configs import TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk

from sim.checkers import (
    Fetched,
    Recovered,
    check_bounds,
    check_epochs,
    check_fetched,
    check_last_values,
    check_producers,
    check_recovered_after_kill,
    check_recovered_after_power_loss,
    check_sequences,
    require,
    whole_batches,
)
from sim.dice import Dice
from sim.history import PlainLog
from sim.node import Hosted, Node, TopicState
from sim.report import Line, Trace
from sim.workload import Producer, Reader

START_MS: Final = 1_000_000
EVERYTHING: Final = 1 << 30
NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True)
class Options:
    """Options of a run besides its seed."""

    length_ms: int = 2_000
    """Simulated time until the workload stops."""
    faults: tuple[str, ...] | None = None
    """Names of the faults that may strike; None: all."""
    is_full: bool = False
    """Print every line as it comes."""


class Simulator:
    """One run. ``run`` returns if all invariants held, and raises for the first that did not."""

    def __init__(self, seed: int, options: Options) -> None:
        from sim.faults import Injector

        self.dice = Dice(seed)
        self.options = options
        self.trace = Trace(is_full=options.is_full)
        self.now = START_MS
        self.disk = MemDisk()
        self.boots = 0
        self.node: Node | None = None
        self.topics: dict[TopicPartition, TopicState] = {}
        self.created_at: dict[TopicPartition, int] = {}
        self.histories: dict[TopicId, PlainLog] = {}
        self.sent_payloads: set[bytes] = set()
        self._is_compacting = False
        self.is_draining = False
        self.is_over = False
        self._topic_ids = count(1)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()
        self._flush: FlushRound | None = None
        for name in ("orders", "prices")[: self.dice.between(1, 2)]:
            self.create_topic(TopicPartition(name, 0), self.draw_config(compact=name == "prices"))
        self.producers = [
            Producer(self, number, self.dice.pick(list(self.topics)))
            for number in range(self.dice.between(2, 4))
        ]
        self.readers = [
            Reader(self, number, one)
            for number, one in enumerate(list(self.topics) * self.dice.between(1, 2))
        ]
        self._injector = Injector(self)

    # -- the clock

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call ``action`` after a delay."""
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._serial), action))

    def run(self) -> None:
        """Run the whole life: work and faults, then quiet, then each kind of restart, audited."""
        self.start_node()
        for producer in self.producers:
            producer.start()
        for reader in self.readers:
            reader.start()
        self._injector.start()
        self._keep_house()
        self._run_until(START_MS + self.options.length_ms)
        self._injector.stop()
        self.is_draining = True
        self._run_until(self.now + 1_500)
        self.is_over = True
        self._run_until(self.now + 800)
        self._last_restarts()

    def _run_until(self, end: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action = heapq.heappop(queue)
            if self.node is not None:
                self.node.now = self.now
            action()
            self.check()
        self.now = max(self.now, end)

    def _last_restarts(self) -> None:
        for restart in (self.kill, self.lose_power, self.stop_cleanly):
            self.audit()
            restart()
            self.flush_all()
        self.audit()

    # -- topics

    def draw_config(self, *, compact: bool) -> TopicConfig:
        """Return a configuration so small that rolls, retention and compaction happen soon."""
        dice = self.dice
        policy: tuple[str, ...] = ("delete",)
        if compact:
            policy = dice.pick((("compact",), ("compact",), ("compact", "delete")))
        return replace(
            topic_config({}),
            cleanup_policy=policy,
            flush=dice.pick(("os", "group")),
            segment_bytes=dice.pick((600, 1_500, 6_000)),
            segment_ms=dice.pick((700, 10**9)),
            segment_jitter_ms=dice.pick((0, 100)),
            index_interval_bytes=dice.pick((50, 400, 4_096)),
            segment_index_bytes=dice.pick((64, 10**6)),
            retention_bytes=dice.pick((-1, -1, 4_000)),
            retention_ms=dice.pick((-1, 10**9, 900)),
            file_delete_delay_ms=dice.pick((0, 60, 600)),
            flush_messages=dice.pick((1, 20, 10**9)),
            message_timestamp_type=dice.pick(("CreateTime", "CreateTime", "LogAppendTime")),
            min_cleanable_dirty_ratio=dice.pick((0.01, 0.5)),
            delete_retention_ms=dice.pick((0, 300, 10**9)),
        )

    def create_topic(self, topic_partition: TopicPartition, config: TopicConfig) -> TopicState:
        """Create a topic as the controller does: each time with another topic id."""
        topic_id = TopicId(next(self._topic_ids).to_bytes(16, "big"))
        state = TopicState(topic_partition, topic_id, config)
        self.topics[topic_partition] = state
        self.created_at[topic_partition] = self.now
        self.histories[topic_id] = PlainLog(topic_partition, topic_id)
        return state

    def history_of(self, topic_partition: TopicPartition) -> PlainLog | None:
        """Return the history of the topic that has this name now."""
        state = self.topics.get(topic_partition)
        return None if state is None else self.histories[state.topic_id]

    def restart_readers(self, topic_partition: TopicPartition) -> None:
        """Restart the readers of a topic that was replaced."""
        for reader in self.readers:
            if reader.topic_partition == topic_partition:
                reader.start_over()

    # -- callbacks of the node

    def on_written(self, hosted: Hosted, batch: bytes) -> None:
        """Implement Watcher."""
        history = self.histories[hosted.log.topic_id]
        written = history.appended(batch, is_promised=hosted.log.config.flush == "group")
        require(
            batch[HEADER_BYTES:] in self.sent_payloads,
            "only what was sent is written",
            f"offset {written.first}",
        )
        if hosted.log.config.flush == "group":
            self.after(self.dice.between(0, 4), self.flush_group)

    def on_synced(self, hosted: Hosted, end: int) -> None:
        """Implement Watcher."""
        history = self.histories[hosted.log.topic_id]
        history.synced_end = max(history.synced_end, end)
        history.is_settled = True

    # -- housekeeping

    def _keep_house(self) -> None:
        dice = self.dice
        for every_ms, act in (
            (dice.pick((100, 400)), self.flush_due),
            (dice.pick((100, 500)), self._save),
            (dice.pick((80, 300)), self._tick),
            (dice.pick((150, 500)), self._compact),
            (40, self._expire),
            (200, self._heal),
        ):
            self._every(every_ms, act)

    def _every(self, every_ms: int, act: Callable[[], None]) -> None:
        def turn() -> None:
            if self.node is not None:
                act()
            if not self.is_over:
                self.after(self.dice.between(1, 2 * every_ms), turn)

        self.after(self.dice.between(1, every_ms), turn)

    def flush_group(self) -> None:
        """Run group commit: a round over all that was written since the last one began."""
        self._begin_flush(only_group=True)

    def flush_due(self) -> None:
        """Run the flush that flush=os does by interval."""
        self._begin_flush(only_group=False)

    def _begin_flush(self, *, only_group: bool) -> None:
        node = self.node
        if node is None or self._flush is not None:
            return
        begun = node.begin_flush(only_group=only_group)
        if begun is None:
            return
        self._flush = begun

        def end() -> None:
            if self.node is node and self._flush is begun:
                self._flush = None
                node.end_flush(begun)
                self.note("flush", "round ended" if begun.error is None else str(begun.error))
                if only_group:
                    self.after(0, self.flush_group)

        self.after(self.dice.between(0, 6), end)

    def flush_all(self) -> None:
        """Run one round over everything, now."""
        node = self.node
        assert node is not None
        if self._flush is not None:
            node.end_flush(self._flush)
            self._flush = None
        for log in node.manager.logs.values():
            log.config = replace(log.config, flush_ms=0)
        begun = node.begin_flush(only_group=False)
        if begun is not None:
            node.end_flush(begun)
        for state in self.topics.values():
            if state.topic_partition in node.hosted:
                node.hosted[state.topic_partition].log.config = state.config

    def _save(self) -> None:
        assert self.node is not None
        self.node.save()

    def _tick(self) -> None:
        assert self.node is not None
        self.node.tick()
        self._note_log_starts()

    def _note_log_starts(self) -> None:
        """Record log starts that were raised: only retention and DeleteRecords do so."""
        assert self.node is not None
        for hosted in self.node.hosted.values():
            history = self.histories[hosted.log.topic_id]
            if hosted.log.log_start > history.log_start:
                self.note("retention", "log start moved", hosted.topic_partition)
            history.log_start = max(history.log_start, hosted.log.log_start)

    def _expire(self) -> None:
        self.running.parked.expire(InstantMs(self.now))

    def _heal(self) -> None:
        assert self.node is not None
        if self.node.heal():
            self.note("disk", "healed")
        self._note_log_starts()
        if self.node.manager.fenced is not None and not self.node.manager.is_full:
            self.note("operator", "restarts a broker whose disk failed")
            self.disk.repair()
            self.kill()

    def _compact(self) -> None:
        """Run one job at a time, as the only worker does."""
        node = self.node
        assert node is not None
        for one, hosted in node.hosted.items():
            job = node.plan_compaction(one) if not self._is_compacting else None
            result = node.run_compaction(job) if job is not None else None
            if result is not None:
                self._is_compacting = True
                self.after(self.dice.between(0, 80), partial(self._swap, node, hosted, result))

    def _swap(self, node: Node, hosted: Hosted, result: CleaningResult) -> None:
        if self.node is not node:
            return
        self._is_compacting = False
        if node.manager.fenced is not None:
            return
        history = self.histories[hosted.log.topic_id]
        # Also if it fails half way: some groups may be in place by then.
        history.cleaned_end = max(history.cleaned_end, result.clean_end)
        if node.swap_in(hosted, result):
            kept = f"{result.records_kept} of {result.records_read}"
            self.note("compact", f"kept {kept} below {result.clean_end}", hosted.topic_partition)

    # -- restarts

    def start_node(self) -> None:
        """Start on the disk as it is; a full or failing one may be refused and is repaired."""
        self._flush = None
        self._is_compacting = False
        try:
            self.node = self._open_node()
        except DiskError as failure:
            self.note("operator", f"makes the disk good: {failure}")
            self.disk.capacity_bytes = NO_LIMIT
            self.disk.repair()
            self.disk.kill()
            self.node = self._open_node()
        self.after(1, self.flush_group)
        for reader in self.readers:
            reader.resume()

    @property
    def running(self) -> Node:
        """Return the node, which is up."""
        assert self.node is not None
        return self.node

    def _open_node(self) -> Node:
        return Node(
            self.disk,
            self.topics,
            now=self.now,
            boot_id=f"boot-{self.boots}",
            dice=self.dice,
            watcher=self,
        )

    def kill(self) -> None:
        """Kill the node (kill -9): the page cache survives."""
        self.node = None
        self.disk.kill()
        self._new_epochs()
        self.start_node()
        self.note("node", "killed, up again")
        self._check_recovered(check_recovered_after_kill)

    def lose_power(self) -> None:
        """Lose the page cache; unsynced bytes are on disk in part, or torn."""
        self.node = None
        self.disk.crash(self.dice.throws(self.dice.between(0, 12)))
        self.boots += 1
        self._new_epochs()
        self.start_node()
        self.note("node", "lost power, up again")
        self._check_recovered(check_recovered_after_power_loss)

    def stop_cleanly(self) -> None:
        """Stop with SIGTERM: everything is on disk, and nothing to recover."""
        node = self.node
        assert node is not None
        if node.manager.fenced is not None:
            self.kill()
            return
        node.save()
        with contextlib.suppress(DiskError):
            node.manager.close()
        if self.disk.is_failing or node.manager.fenced is not None:
            self.kill()
            return
        self.node = None
        self.disk.kill()
        self._new_epochs()
        self.start_node()
        self.note("node", "stopped, up again")
        manager = self.running.manager
        require(manager.clean_start, "a clean stop is seen as one")
        require(not manager.reports, "a clean stop leaves nothing to recover", manager.reports)
        self._check_recovered(check_recovered_after_kill)

    def _new_epochs(self) -> None:
        """Raise the leader epochs as an election does, mostly."""
        for state in self.topics.values():
            if self.dice.chance(0.7):
                state.leader_epoch += 1

    def _check_recovered(self, check: Callable[[PlainLog, Recovered], None]) -> None:
        assert self.node is not None
        for hosted in self.node.hosted.values():
            log = hosted.log
            history = self.histories[log.topic_id]
            found = Recovered(
                log.log_start,
                log.log_end,
                log.first_base_offset,
                log.producers.entries(),
                log.epochs,
            )
            is_flipped = any(one.is_damaged for one in history.batches)
            require(log.damage is None or is_flipped, "a crash is not damage", log.damage)
            check(history, found)
            history.cut_to(log.log_end)
            history.log_start = log.log_start
            history.is_settled = False
            for reader in self.readers:
                if reader.topic_partition == log.topic_partition:
                    reader.forget_from(log.log_end)
            self._check_state(history, hosted)

    # -- checks

    def check(self) -> None:
        """Run the cheap checks, after every step."""
        node = self.node
        if node is None:
            return
        node.check()
        for hosted in node.hosted.values():
            bounds = hosted.bounds()
            check_bounds(bounds)
            history = self.histories[hosted.log.topic_id]
            require(
                bounds.log_end == history.log_end == hosted.log.log_end,
                "the log ends where the last batch does",
                f"{bounds}, history {history.log_end}, log {hosted.log.log_end}",
            )

    def _check_state(self, history: PlainLog, hosted: Hosted) -> None:
        log = hosted.log
        check_producers(history, log.producers.entries(), log.first_base_offset)
        check_epochs(history, log.epochs, log.log_start)

    def audit(self) -> None:
        """Read everything, and compare it with the history."""
        node = self.node
        assert node is not None
        for one, hosted in node.hosted.items():
            history = self.histories[hosted.log.topic_id]
            self._check_state(history, hosted)
            answer = node.fetch(one, hosted.partition.log_start, EVERYTHING)
            if answer.read is None:
                continue
            records = b"".join(p.file.read_at(p.position, p.length) for p in answer.read.slices)
            fetched = Fetched(hosted.partition.log_start, answer.high_watermark, records)
            end = check_fetched(history, fetched)
            is_cleaned = history.cleaned_end > 0
            require(
                end == answer.high_watermark or is_cleaned,
                "all records up to the high watermark are served",
                f"{end} of {answer.high_watermark}",
            )
            headers = [header for _, header in iterate_headers(records)]
            if is_cleaned:
                found = [
                    record
                    for header, batch in whole_batches(fetched)
                    for record in read_records(memoryview(batch), header)
                ]
                if answer.high_watermark == history.log_end:
                    check_last_values(history, found, hosted.partition.log_start)
            else:
                check_sequences(headers)

    # -- the report

    def note(self, actor: str, what: str, topic_partition: TopicPartition | None = None) -> None:
        """Add one line to the trace."""
        hosted = None
        if self.node is not None and topic_partition is not None:
            hosted = self.node.hosted.get(topic_partition)
        self.trace.add(
            Line(
                self.now - START_MS,
                actor,
                what,
                "" if topic_partition is None else str(topic_partition),
                "" if hosted is None else hosted.partition.role.value,
                -1 if hosted is None else hosted.partition.leader_epoch,
                None if hosted is None else hosted.bounds(),
            )
        )
