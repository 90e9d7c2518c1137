"""Parts of a simulated cluster: options, topics, machines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from broker.core.partition import Role
from tidemark.model.ids import TopicId
from tidemark.storage.mem_disk import MemDisk

from sim.cluster.coordinator_process import CoordinatorProcess
from sim.cluster.ledger import Ledger
from sim.cluster.network import Host
from sim.cluster.processes import BrokerProcess, ControllerProcess, Timing
from sim.cluster.supervisor import Supervisor

FAST = Timing()
Seen = tuple[int, int, int, Role, TopicId]
"""Log end, high watermark, leader epoch, role, and topic among those that have had the name."""


@dataclass(frozen=True)
class Options:
    """Options of a run besides its seed."""

    length_ms: int = 2_500
    faults: tuple[str, ...] | None = None
    is_full: bool = False
    timing: Timing = FAST
    brokers: int = 0
    """Number of brokers; 0: drawn."""
    followers_serve: bool = False
    """True: consumers read from followers in every seed; else in some."""
    records_are_deleted: bool = False
    """True: a client deletes records in every seed; else in some."""


@dataclass
class SimTopic:
    """A topic of one partition, or one of several partitions of a topic."""

    name: str
    topic_id: TopicId
    configs: dict[str, str]
    replicas: tuple[int, ...]
    ledger: Ledger
    may_lose: bool = False
    is_moving: bool = False
    """True while replicas are being added or removed."""
    is_gone: bool = False
    """True once the topic was deleted."""
    partition: int = 0

    @property
    def title(self) -> str:
        """Name in the lines of the trace."""
        return f"{self.name}-{self.partition}"

    @property
    def place(self) -> tuple[str, int]:
        """Topic name and partition: the key at brokers."""
        return self.name, self.partition

    @property
    def flush_group(self) -> bool:
        return self.configs.get("flush") == "group"


@dataclass(eq=False)
class Machine:
    """A broker's machine: it stays while processes and disks come and go."""

    number: int
    host: Host
    disks: list[MemDisk]
    """Disks, one for each log directory."""
    directory_ids: list[str]
    rate_permille: int
    boots: int = 0
    memory: MemDisk = field(default_factory=MemDisk)
    """Files that outlive a process, but not a boot of the machine."""
    process: BrokerProcess | None = None
    is_lossy: bool = False
    """True if it lost data and the controller has not taken it out of the ISR yet."""
    is_hurt: bool = False
    """True if its disk fails or has failed under the running process, or has damaged data."""
    rotten: list[tuple[MemDisk, str]] = field(default_factory=list)
    """Files in which bits have flipped."""
    was_hurt: bool = False
    """True if ``is_hurt`` was ever true."""
    began_at: int = 0
    dead: list[BrokerProcess] = field(default_factory=list)
    restart_planned: bool = False
    supervisors: list[Supervisor] = field(default_factory=list)
    """Supervisors of processes that have ended."""
    seen: dict[tuple[str, int], Seen] = field(default_factory=dict)
    """State of each partition at the last check."""
    replaced: int = 0
    """Number of replaced disks."""

    @property
    def is_failing(self) -> bool:
        """True if calls on a disk fail now."""
        return any(disk.is_failing for disk in self.disks)

    @property
    def is_exhausted(self) -> bool:
        """True if its process can open no file now."""
        return any(disk.exhausted for disk in self.disks)

    @property
    def has_fenced(self) -> bool:
        """True if its process has taken a log directory out of service, or started without it."""
        if self.process is None:
            return False
        managers = self.process.broker.partitions.disks.log_managers
        return len(managers) < len(self.disks) or any(one.fenced is not None for one in managers)

    def boot(self) -> None:
        """Count a boot: the memory is empty again."""
        self.boots += 1
        self.memory = MemDisk()

    def replace_disk(self, at: int) -> None:
        """Replace a disk by an empty one."""
        self.replaced += 1
        self.disks[at] = MemDisk()
        self.directory_ids[at] = f"dir-{self.number}-{at}-{self.replaced}"


@contextmanager
def readable(disk: MemDisk) -> Iterator[None]:
    """Let a check from outside read the disk, whatever fails there."""
    fails, exhausted = disk.reads_fail, disk.exhausted
    disk.reads_fail = disk.exhausted = False
    try:
        yield
    finally:
        disk.reads_fail, disk.exhausted = fails, exhausted


@dataclass
class CoordinatorReplica:
    """Machine of a coordinator."""

    number: int
    host: Host
    kind: str
    """Kind of the shards that it may own."""
    process: CoordinatorProcess | None = None
    dead: list[CoordinatorProcess] = field(default_factory=list)


@dataclass
class Replica:
    """Machine of a controller."""

    number: int
    host: Host
    process: ControllerProcess | None = None
    dead: list[ControllerProcess] = field(default_factory=list)


@dataclass
class FatalWrite:
    """The transaction of a controller that is its last."""

    left: int
    """Number of matching transactions until then."""
    deadline: int
    counts: Callable[[], bool] = lambda: True

    def is_this(self, now: int) -> bool:
        """Return True if the transaction committed now is the one."""
        if now > self.deadline or not self.counts():
            return False
        self.left -= 1
        return self.left == 0
