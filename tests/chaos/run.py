"""One run: a cluster, its clients, faults by the plan, healing, reading back, the report."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.cluster import (
    BROKERS,
    COORDINATORS,
    INTERNAL_PARTITIONS,
    SESSION_S,
    ChaosCluster,
    NotHealedError,
    running_cluster,
    wait_none,
)
from chaos.counting import Unavailability, Window, longest_stall, windows
from chaos.exactly_once import THREADS, ExactlyOnce
from chaos.history import Findings, History, check
from chaos.load import Reader, Writer, end_offsets, read_back
from chaos.plan import ROUND_STEPS, Ground, Step, draw_steps
from chaos.replicas import differences, misindexed, read_replicas
from chaos.report import Figures, Report, TransactionFigures
from chaos.sessions import Onlooker
from chaos.share_copying import THREADS as SHARE_COPY_THREADS
from chaos.share_copying import ShareCopier
from chaos.share_history import COPY_PROMISES, PROMISES, check_copies, check_shares
from chaos.sharing import THREADS as SHARE_THREADS
from chaos.sharing import Sharing
from chaos.strikes import Strikes
from chaos.topics import (
    DATA_PARTITIONS,
    NAMES,
    PARTITIONS,
    PLAIN_PARTITIONS,
    SHARE_COPY_PARTITION,
    SHARED,
    SHARED_PARTITIONS,
    create_topics,
)
from chaos.transactions import Outcome as TransactionOutcome
from chaos.transactions import TransactionFindings, TransactionHistory, check_transactions
from chaos.watch import Watcher

WRITERS: Final = 2
FLUSH_S: Final = 300.0
READ_BACK_S: Final = 300.0
_AFTERWARDS_S: Final = 2.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Options:
    """What a person may choose."""

    seed: int
    seconds: float = 600.0
    writes_s: float = 400.0


@dataclass
class Outcome:
    """The report, and what led to it."""

    report: Report
    steps: list[Step]
    events: list[str]
    windows: list[Window]


@dataclass
class _Run:
    """What grows during a run."""

    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    others: dict[str, list[str]] = field(
        default_factory=lambda: {
            "not healed": [],
            "ended by itself": [],
            "did not stop": [],
            "writes refused": [],
            "transactions refused": [],
            "copiers ended": [],
            "reader errors": [],
            "replicas differ": [],
            "aborted misindexed": [],
            "errors logged": [],
            **{promise: [] for promise in PROMISES + COPY_PROMISES},
        }
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, what: str) -> None:
        """One line with its time, from any thread."""
        with self._lock:
            line = f"{time.monotonic() - self.began:>7.1f}  {what}"
            self.events.append(line)
            self.say(line)


class _Clients:
    """Writers, readers, copiers, members of a share group and the watcher, in threads; a failure of
    one is ours and is raised.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        cluster: ChaosCluster,
        watcher: Watcher,
        exactly_once: ExactlyOnce,
        sharing: Sharing,
        share_copier: ShareCopier,
    ) -> None:
        self.watcher, self.exactly_once, self.sharing = watcher, exactly_once, sharing
        self.share_copier = share_copier
        self.reader = Reader(cluster.bootstrap, PLAIN_PARTITIONS)
        self.writers: list[Writer] = []
        self._pool, self._bootstrap = pool, cluster.bootstrap
        self._futures: list[Future[None]] = []
        self._writing: list[Future[None]] = []

    def start(self, writes_s: float) -> None:
        """Begin to write, read and watch."""
        self.writers = [
            Writer(number, self._bootstrap, PLAIN_PARTITIONS, writes_s / WRITERS)
            for number in range(1, WRITERS + 1)
        ]
        self._writing = [self._pool.submit(one.run, FLUSH_S) for one in self.writers]
        self._futures = [self._pool.submit(one.run) for one in (self.reader, self.watcher)]
        self.exactly_once.start()
        self.sharing.start()
        self.share_copier.start()

    def check(self) -> None:
        """Raise what ended a thread."""
        for future in (*self._writing, *self._futures):
            if future.done():
                future.result()
        self.exactly_once.check()
        self.sharing.check()
        self.share_copier.check()

    def stop_writing(self) -> None:
        """And wait for the last acknowledgement."""
        for writer in self.writers:
            writer.stop()
        self.exactly_once.stop_writing()
        wait(self._writing, return_when=FIRST_EXCEPTION)
        self.check()

    def stop(self) -> None:
        """All of them."""
        for writer in self.writers:
            writer.stop()
        self.reader.stop()
        self.watcher.stop()
        self.exactly_once.stop()
        self.sharing.stop()
        self.share_copier.stop()


def run(options: Options, directory: Path, say: Callable[[str], None]) -> Outcome:
    """The whole of it. What it writes is under ``directory``."""
    with ExitStack() as ending:
        cluster = ending.enter_context(running_cluster(directory))
        onlooker = Onlooker(cluster.layout.zookeeper_connect)
        ending.callback(onlooker.stop)
        create_topics(cluster)
        this = _Run(say)
        watcher = Watcher(cluster, onlooker, this.tell)
        strikes = Strikes(cluster, onlooker, this.tell)
        threads = WRITERS + 2 + THREADS + SHARE_THREADS + SHARE_COPY_THREADS
        pool = ending.enter_context(ThreadPoolExecutor(threads))
        exactly_once = ExactlyOnce(pool, cluster.bootstrap, options.seed, this.tell)
        sharing = Sharing(pool, cluster.bootstrap, SHARED_PARTITIONS, options.seed, this.tell)
        share_copier = ShareCopier(
            pool,
            cluster.bootstrap,
            grpc_addresses=cluster.grpc_addresses,
            source=SHARED,
            copies=SHARE_COPY_PARTITION,
            seed=options.seed,
            tell=this.tell,
        )
        clients = _Clients(pool, cluster, watcher, exactly_once, sharing, share_copier)
        ending.callback(clients.stop)
        this.began = time.monotonic()
        clients.start(options.writes_s)
        _strike(this, options, cluster, strikes, clients)
        seconds = time.monotonic() - this.began
        this.tell("writing ends")
        history = _read_everything(this, cluster, clients)
        transactions = _finish_transactions(this, exactly_once)
        clients.stop()
        _compare_replicas(this, cluster)
        this.others["did not stop"] += strikes.problems
        this.others["errors logged"] += cluster.errors_logged()
        gaps = _windows(this, clients.writers, seconds)
        figures = Figures(
            seconds=seconds,
            rounds=len(this.steps) // ROUND_STEPS,
            acknowledged=len(history.acknowledged),
            elections=watcher.elections.count,
            controller_changes=watcher.epochs.changes,
            session_expiries=watcher.sessions.expired + strikes.expired_controllers,
            unavailability=Unavailability.of(gaps),
            faults=dict(strikes.done),
            transactions=_transaction_figures(this, seconds, exactly_once, watcher),
            shared=len(sharing.history.finished_at),
            share_copies=share_copier.committed,
        )
        findings = check(history) if history.read_back else Findings()
        torn = TransactionFindings() if transactions is None else check_transactions(transactions)
        report = Report(options.seed, figures, findings, this.others, torn)
        return Outcome(report, this.steps, this.events, gaps)


def _strike(
    this: _Run, options: Options, cluster: ChaosCluster, strikes: Strikes, clients: _Clients
) -> None:
    """Step by step until the time is over and a round is made, then until all is whole. Ends early
    when it is not.
    """
    end = this.began + options.seconds
    ground = Ground(
        BROKERS,
        len(DATA_PARTITIONS),
        SESSION_S,
        COORDINATORS,
        INTERNAL_PARTITIONS,
        disks_fail=cluster.disks.problem is None,
    )
    if cluster.disks.problem is not None:
        this.tell(f"no disk fails in this run: {cluster.disks.problem}")
    steps = draw_steps(options.seed, ground)
    with _noting_wounds(this):
        while time.monotonic() < end or len(this.steps) < ROUND_STEPS:
            step = next(steps)
            this.steps.append(step)
            this.tell(f"step {step}")
            _wait(this, cluster, clients, step.calm_s)
            _perform(this, step, cluster, strikes, clients)
            _heal(this, cluster, clients, until_whole=step.until_whole)
    strikes.end_all()
    with _noting_wounds(this):
        _heal(this, cluster, clients, until_whole=True)
        this.tell("all is whole")
    _wait(this, cluster, clients, _AFTERWARDS_S)


def _perform(
    this: _Run, step: Step, cluster: ChaosCluster, strikes: Strikes, clients: _Clients
) -> None:
    began = time.monotonic()
    for act in step.acts():
        _wait(this, cluster, clients, began + act.at_s - time.monotonic())
        strikes.carry_out(act)


def _heal(this: _Run, cluster: ChaosCluster, clients: _Clients, *, until_whole: bool) -> None:
    def wounds() -> list[str]:
        clients.check()
        _note_ended(this, cluster)
        if until_whole:
            return cluster.wounds(NAMES, len(PARTITIONS))
        return cluster.problems()

    took_s = wait_none(wounds, "healing")
    this.tell(f"{'whole' if until_whole else 'ready'} after {took_s:.1f} s")


@contextmanager
def _noting_wounds(this: _Run) -> Iterator[None]:
    try:
        yield
    except NotHealedError as problem:
        this.tell(f"not healed: {problem}")
        this.others["not healed"].append(str(problem))


def _wait(this: _Run, cluster: ChaosCluster, clients: _Clients, seconds: float) -> None:
    """Let time pass, and notice what should not happen meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        clients.check()
        _note_ended(this, cluster)
        time.sleep(min(_LOOK_S, left))


def _note_ended(this: _Run, cluster: ChaosCluster) -> None:
    """A process that ended though nobody ended it is told, and started again as a supervisor
    would.
    """
    for name in cluster.ended_by_themselves():
        this.tell(f"{name} ended by itself")
        this.others["ended by itself"].append(f"{name}\n{cluster.tail(name)}")
        cluster.begin(name)


def _read_everything(this: _Run, cluster: ChaosCluster, clients: _Clients) -> History:
    """Wait for the last acknowledgement, then read all, and let the reader catch up."""
    clients.stop_writing()
    history = History()
    for writer in clients.writers:
        history.sent |= writer.sent
        history.acknowledged += writer.acknowledged
        this.others["writes refused"] += writer.errors
    this.tell(f"{len(history.acknowledged):,} acknowledged, reading back")
    with _noting_wounds(this):
        try:
            ends = end_offsets(cluster.bootstrap, PLAIN_PARTITIONS, READ_BACK_S)
        except TimeoutError as problem:
            raise NotHealedError(str(problem)) from problem
        history.read_back = read_back(cluster.bootstrap, ends, READ_BACK_S)
        history.followed = clients.reader.seen
        wait_none(lambda: clients.reader.behind(ends), "the reader's catching up", FLUSH_S)
        shared = {one: ends[one] for one in SHARED_PARTITIONS}
        starts = clients.sharing.finish(shared)
        this.others.update(check_shares(clients.sharing.history, starts, shared))
        copier = clients.share_copier
        starts, copies = copier.finish(shared)
        this.others.update(check_copies(copier.history, copies, starts, shared))
    this.others["reader errors"] += clients.reader.errors
    clients.reader.stop()
    return history


def _finish_transactions(this: _Run, exactly_once: ExactlyOnce) -> TransactionHistory | None:
    """Let the copy end, and read all; None where the cluster no longer answers."""
    for writer in exactly_once.writers:
        this.others["transactions refused"] += writer.errors
        this.tell(writer.summary())
    history: TransactionHistory | None = None
    with _noting_wounds(this):
        try:
            history = exactly_once.finish()
        except TimeoutError as problem:
            raise NotHealedError(str(problem)) from problem
    this.others["not healed"] += exactly_once.problems
    this.others["copiers ended"] += exactly_once.copiers.errors
    this.others["reader errors"] += exactly_once.reader.errors
    return history


def _transaction_figures(
    this: _Run, seconds: float, exactly_once: ExactlyOnce, watcher: Watcher
) -> TransactionFigures:
    copiers = exactly_once.copiers

    def longest_s(what: str, moments: Sequence[float]) -> float:
        stall = longest_stall([moment - this.began for moment in moments], seconds)
        this.tell(f"{what}: none for {stall.length_s:.1f} s from {stall.began_s:.1f} on")
        return stall.length_s

    return TransactionFigures(
        committed=exactly_once.outcomes(TransactionOutcome.COMMITTED),
        aborted=exactly_once.outcomes(TransactionOutcome.ABORTED),
        unknown=exactly_once.outcomes(TransactionOutcome.UNKNOWN),
        copied=len(copiers.copied_at),
        zombies=copiers.zombies,
        stuck=copiers.stuck,
        coordinator_changes=watcher.owners.moves,
        group_moves=watcher.group_moves,
        uncommitted_s=max(
            longest_s(f"commits of {one}", one.committed_at) for one in exactly_once.writers
        ),
        uncopied_s=longest_s("copies", copiers.copied_at),
    )


def _compare_replicas(this: _Run, cluster: ChaosCluster) -> None:
    """Stop the brokers with nothing on its way, and compare what they have on disk."""
    if this.others["not healed"]:
        return
    numbers = range(1, BROKERS + 1)
    for number in numbers:
        cluster.signal_stop(f"broker-{number}")
    for number in numbers:
        if not cluster.wait_ended(f"broker-{number}"):
            this.others["did not stop"].append(f"broker-{number}, at the end")
    data = {number: cluster.layout.data_path(f"broker-{number}") for number in numbers}
    this.others["replicas differ"] += differences(read_replicas(data, DATA_PARTITIONS))
    this.others["aborted misindexed"] += misindexed(data, DATA_PARTITIONS)


def _windows(this: _Run, writers: Sequence[Writer], seconds: float) -> list[Window]:
    return [
        window
        for partition in PLAIN_PARTITIONS
        for window in windows(
            partition,
            [at - this.began for one in writers for at in one.acknowledged_at[partition]],
            seconds,
        )
    ]
