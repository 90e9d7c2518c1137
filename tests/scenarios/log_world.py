"""The world of tests/scenarios/log: one node of the simulator, moved by hand. docs/testing.md lists
its commands.
"""

from collections.abc import Callable
from dataclasses import replace

from broker.core.fetch_sessions import FetchPlan
from broker.storage.stamp import StampError
from scenarios.runner import Command
from sim.dice import Dice
from sim.node import FetchAnswer, Hosted, Node, ProduceAnswer, TopicState
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, InstantMs, TopicId
from tidemark.model.topic_configs import TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk

START_MS = 1_000_000
ORDERS = TopicPartition("orders", 0)
NO_LIMIT = 1 << 62
PRODUCER_IDS = {f"p{number}": number for number in range(1, 10)}
SMALL = {"segment_bytes": 1_000, "index_interval_bytes": 200, "file_delete_delay_ms": 1_000}


class LogWorld:
    """One partition on one broker. Answers that come later are printed when they come."""

    def __init__(self) -> None:
        self.disk = MemDisk()
        self.now = START_MS
        self.boots = 0
        self.topic_ids = 1
        self.state = TopicState(ORDERS, TopicId(bytes(15) + b"\x01"), topic_config({}))
        self.output: list[str] = []
        self.node: Node | None = None
        self.sessions: dict[str, tuple[int, int]] = {}

    def execute(self, command: Command) -> list[str]:
        """Do one command; the lines it gave."""
        self.output = []
        act: Callable[[Command], None] | None = getattr(
            self, "do_" + command.verb.replace("-", "_"), None
        )
        assert act is not None, f"no command {command.verb}"
        if self.node is not None:
            self.node.now = self.now
        act(command)
        if self.node is not None:
            self.node.check()
        return self.output

    # -- Watcher

    def on_written(self, hosted: Hosted, batch: bytes) -> None:
        """Sim's watcher; scripts look at the state instead."""

    def on_synced(self, hosted: Hosted, end: int) -> None:
        """As above."""

    # -- the node's life

    def do_start(self, command: Command) -> None:
        self._configure(command)
        self._up()

    def do_config(self, command: Command) -> None:
        self._configure(command)
        self._node.configure(self.state)
        self._say_state()

    def do_kill(self, command: Command) -> None:
        self.disk.kill()
        self._restart()

    def do_power(self, command: Command) -> None:
        """Power loss; the dice say what of the unsynced survives: journal entries, then for each
        file bytes kept and bytes of them torn.
        """
        self.disk.crash([int(die) for die in command.options.get("dice", "0").split(",")])
        self.boots += 1
        self._restart()

    def do_stop(self, command: Command) -> None:
        self._node.save()
        self._node.manager.close()
        self.disk.kill()
        self._restart()

    def _restart(self) -> None:
        self.state.leader_epoch += 1
        self._up()

    def _up(self) -> None:
        try:
            self.node = Node(
                self.disk,
                {ORDERS: self.state},
                now=self.now,
                boot_id=f"boot-{self.boots}",
                dice=Dice(1),
                watcher=self,
            )
        except StampError as refused:
            self.output.append(f"refused: {refused}")
            return
        manager = self.node.manager
        for report in manager.reports:
            if report.truncated_bytes:
                self.output.append(f"cut {report.truncated_bytes} B: {report.truncated_because}")
            if report.damage:
                self.output.append(f"damage: {report.damage}")
        self.output += [f"stray: {name}" for name in manager.strays]
        self._say_state()

    # -- produce and fetch

    def do_produce(self, command: Command) -> None:
        """``produce p1 seq=0 records=2``; without a producer the batch has no sequence."""
        names = command.arguments
        records = command.number("records", 1)
        stamp = self.now + command.number("timestamp", 0)
        key = command.options.get("key")
        batch = build_batch(
            [
                (stamp, key.encode() if key else None, b"x" * command.number("bytes", 10), ())
                for _ in range(records)
            ],
            producer_id=PRODUCER_IDS[names[0]] if names else -1,
            producer_epoch=command.number("epoch", 0) if names else -1,
            base_sequence=command.number("seq", 0) if names else -1,
        )
        who = names[0] if names else "client"
        said = len(self.output)
        self._node.produce(
            ORDERS, bytearray(batch), command.number("acks", -1), lambda one: self._heard(who, one)
        )
        if len(self.output) == said:
            self.output.append(f"{who} waits")
        self._say_state()

    def _heard(self, who: str, answer: ProduceAnswer) -> None:
        at = "" if answer.base_offset < 0 else f" {answer.base_offset}"
        self.output.append(f"{who} <- {answer.error_code.name}{at}")

    def do_fetch(self, command: Command) -> None:
        """``fetch 3``; with ``wait=100`` it parks where nothing is."""
        offset = int(command.arguments[0])
        answer = self._node.fetch(ORDERS, offset, command.number("bytes", 10_000))
        wait_ms = command.number("wait", 0)
        if answer.read is None and answer.error_code == ErrorCode.NONE and wait_ms:
            self._park(command, wait_ms)
            return
        self._say_fetched(answer)

    def _park(self, command: Command, wait_ms: int) -> None:
        hosted, offset = self._hosted, int(command.arguments[0])

        def wake(fulfilled: bool) -> None:
            why = "woken" if fulfilled else "not fulfilled"
            self.output.append(f"fetch {offset} {why}")
            self._say_fetched(self._node.fetch(ORDERS, offset, 10_000))

        self._node.parked.park_fetch(
            [hosted],
            bytes_missing=command.number("min", 1),
            now=InstantMs(self.now),
            wait_ms=wait_ms,
            wake=wake,
        )
        self.output.append(f"fetch {offset} waits")

    def _say_fetched(self, answer: FetchAnswer) -> None:
        if answer.read is None:
            self.output.append(f"fetched {answer.error_code.name} hw={answer.high_watermark}")
            return
        try:
            records = b"".join(p.file.read_at(p.position, p.length) for p in answer.read.slices)
        except DiskError as gone:
            self.output.append(f"fetched {gone}")
            return
        end = 0
        for position, header in iterate_headers(records):
            end = position + header.size_bytes
            producer = f" p{header.producer_id} e{header.producer_epoch} s{header.base_sequence}"
            self.output.append(
                f"fetched {header.base_offset}..{header.last_offset}"
                f" epoch {header.partition_leader_epoch}"
                + (producer if header.producer_id >= 0 else "")
            )
        if end < len(records):
            self.output.append(f"fetched {len(records) - end} B that are no batch")

    def do_timestamps(self, command: Command) -> None:
        """Of every batch, with who set it."""
        read = self._hosted.log.read(
            self._hosted.log.log_start, 10**6, end=self._hosted.log.log_end
        )
        records = b"".join(p.file.read_at(p.position, p.length) for p in read.slices)
        for _, header in iterate_headers(records):
            kind = "append time" if header.is_log_append_time else "create time"
            self.output.append(f"{header.base_offset}: {header.max_timestamp - START_MS} {kind}")

    # -- fetch sessions

    def do_session(self, command: Command) -> None:
        """``session r1 open 0``, ``session r1 next [offset]``, ``session r1 close``."""
        name, act, *rest = command.arguments
        session_id, epoch = self.sessions.get(name, (0, 0))
        if act == "open":
            epoch = 0
        elif act == "close":
            epoch = -1
        key = ("orders", NO_TOPIC_ID, 0)
        plan = self._node.sessions.begin(
            session_id,
            command.number("epoch", epoch),
            [(key, int(rest[0]))] if rest else [],
            [key] if command.options.get("forget") else [],
            by_id=False,
            now=InstantMs(self.now),
        )
        if isinstance(plan, ErrorCode):
            self.output.append(f"{name} <- {plan.name}")
            return
        self._answer_session(name, plan)

    def _answer_session(self, name: str, plan: FetchPlan[int]) -> None:
        session = plan.session
        if session is None:
            self.sessions.pop(name, None)
            self.output.append(f"{name} <- no session")
        else:
            self.sessions[name] = session.session_id, session.epoch
            kind = "changes" if plan.incremental else "everything"
            self.output.append(f"{name} <- session epoch {session.epoch - 1}, {kind}")
        for key, offset in plan.wanted:
            answer = self._node.fetch(ORDERS, offset, 10_000)
            size = 0 if answer.read is None else answer.read.length_bytes
            told = session is None or session.partitions[key].must_answer(
                int(answer.error_code), answer.high_watermark, answer.log_start, size
            )
            if told or not plan.incremental:
                self.output.append(
                    f"  orders-0 from {offset}: {size} B hw={answer.high_watermark}"
                    f" start={answer.log_start} {answer.error_code.name}"
                )

    # -- maintenance and administration

    def do_flush(self, command: Command) -> None:
        """``flush``: the group's round; ``flush all``: as if the interval had come."""
        node = self._node
        if "all" in command.arguments:
            begun = node.manager.begin_flush(only_group=False, now_ms=self.now + 10**9)
        else:
            begun = node.begin_flush(only_group=True)
        if begun is not None:
            node.end_flush(begun)
        self._say_state()

    def do_save(self, command: Command) -> None:
        self._node.save()

    def do_sync_names(self, command: Command) -> None:
        self.disk.sync_directory("")

    def do_roll(self, command: Command) -> None:
        self._node.roll(ORDERS)

    def do_tick(self, command: Command) -> None:
        """Time passes: deadlines, then retention."""
        self.now += command.number("ms", 1)
        self._node.now = self.now
        self._node.parked.expire(InstantMs(self.now))
        self._node.tick()
        self._say_state()

    def do_delete_records(self, command: Command) -> None:
        code = self._node.delete_records(ORDERS, int(command.arguments[0]))
        self.output.append(code.name)
        self._say_state()

    def do_delete_topic(self, command: Command) -> None:
        self._node.unhost(ORDERS)

    def do_create_topic(self, command: Command) -> None:
        """Another topic of the same name."""
        self.topic_ids += 1
        topic_id = TopicId(self.topic_ids.to_bytes(16, "big"))
        self.state = replace(self.state, topic_id=topic_id, leader_epoch=0)
        if "later" not in command.arguments:
            self._node.host(self.state)
            self._say_state()

    def do_compact(self, command: Command) -> None:
        job = self._node.plan_compaction(ORDERS)
        result = None if job is None else self._node.run_compaction(job)
        if result is None or not self._node.swap_in(self._hosted, result):
            self.output.append("nothing to compact")
            return
        self.output.append(f"kept {result.records_kept} of {result.records_read}")

    def do_fill(self, command: Command) -> None:
        """No space but for ``room`` bytes."""
        self.disk.capacity_bytes = 1 << 40
        used = (1 << 40) - self.disk.free_bytes()
        self.disk.capacity_bytes = used + command.number("room", 0)

    def do_free(self, command: Command) -> None:
        self.disk.capacity_bytes = NO_LIMIT
        self.output.append("healed" if self._node.heal() else "nothing to heal")

    def do_break_sync(self, command: Command) -> None:
        self.disk.syncs_fail = True

    def do_flip(self, command: Command) -> None:
        """``flip orders-0/00000000000000000000.log at=70``."""
        self.disk.flip_bit(command.arguments[0], command.number("at", 0))

    # -- looking

    def do_segments(self, command: Command) -> None:
        for one in self._hosted.log.segments():
            active = " active" if one.active else ""
            self.output.append(f"{one.base_offset}.._{one.end_offset} {one.size_bytes} B{active}")

    def do_files(self, command: Command) -> None:
        directory = command.arguments[0] if command.arguments else ""
        self.output += self.disk.list(directory)

    def do_producers(self, command: Command) -> None:
        for entry in self._hosted.partition.producers.statistics():
            batches = " ".join(f"s{one.base_sequence}@{one.base_offset}" for one in entry.batches)
            self.output.append(f"p{entry.producer_id} e{entry.producer_epoch} {batches}")

    def do_epochs(self, command: Command) -> None:
        for epoch, start in self._hosted.log.epochs.entries():
            self.output.append(f"epoch {epoch} from {start}")

    # -- inside

    @property
    def _node(self) -> Node:
        assert self.node is not None, "start first"
        return self.node

    @property
    def _hosted(self) -> Hosted:
        return self._node.hosted[ORDERS]

    def _configure(self, command: Command) -> None:
        values = {name.replace("-", "_"): value for name, value in command.options.items()}
        config: TopicConfig = self.state.config
        if not self.node:
            config = replace(config, **SMALL)  # type: ignore[arg-type]
        typed = {
            name: tuple(value.split(",")) if name == "cleanup_policy" else _typed(value)
            for name, value in values.items()
        }
        self.state.config = replace(config, **typed)  # type: ignore[arg-type]

    def _say_state(self) -> None:
        hosted = self.node.hosted.get(ORDERS) if self.node else None
        if hosted is not None:
            one = hosted.partition
            fenced = f" fenced: {self._node.manager.fenced}" if self._node.manager.fenced else ""
            self.output.append(
                f"orders-0 {one.role.value} e{one.leader_epoch} {hosted.bounds()}{fenced}"
            )


def _typed(value: str) -> object:
    try:
        return int(value)
    except ValueError:
        return value
