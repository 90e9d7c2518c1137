"""What a simulated cluster is made of: options, topics, machines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from broker.core.partition import Role
from tidemark.model.ids import TopicId
from tidemark.storage.mem_disk import MemDisk

from sim.cluster.ledger import Ledger
from sim.cluster.network import Host
from sim.cluster.processes import BrokerProcess, ControllerProcess, Timing
from sim.cluster.txn_processes import CoordinatorProcess

FAST = Timing()
Seen = tuple[int, int, int, Role, TopicId]
"""Log end, high watermark, leader epoch, role, and which of the topics that have had the name."""


@dataclass(frozen=True)
class Options:
    """What a run can be told besides its seed."""

    length_ms: int = 2_500
    faults: tuple[str, ...] | None = None
    is_full: bool = False
    timing: Timing = FAST


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
    """Replicas are being added or removed."""
    is_gone: bool = False
    """It was deleted."""
    partition: int = 0

    @property
    def title(self) -> str:
        """As lines name it."""
        return f"{self.name}-{self.partition}"

    @property
    def place(self) -> tuple[str, int]:
        """By which brokers find it."""
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
    """One for each log directory."""
    directory_ids: list[str]
    rate_permille: int
    boots: int = 0
    memory: MemDisk = field(default_factory=MemDisk)
    """Files that outlive a process, and not the machine."""
    process: BrokerProcess | None = None
    is_lossy: bool = False
    """It lost what it had; the controller has not taken it out of the ISR yet."""
    is_hurt: bool = False
    """Its disk fails, or has failed the process that runs; or something there is damaged."""
    rotten: list[tuple[MemDisk, str]] = field(default_factory=list)
    """Files in which bits have flipped."""
    was_hurt: bool = False
    """At any time."""
    began_at: int = 0
    dead: list[BrokerProcess] = field(default_factory=list)
    restart_planned: bool = False
    seen: dict[tuple[str, int], Seen] = field(default_factory=dict)
    """Of each partition, as last looked at."""
    replaced: int = 0
    """How many disks it has had beside the first ones."""

    @property
    def is_failing(self) -> bool:
        """Whether calls on a disk fail now."""
        return any(disk.is_failing for disk in self.disks)

    @property
    def is_exhausted(self) -> bool:
        """Whether its process can open no file now."""
        return any(disk.exhausted for disk in self.disks)

    @property
    def has_fenced(self) -> bool:
        """Whether its process has a log directory out of service, or has started without it."""
        if self.process is None:
            return False
        managers = self.process.broker.partitions.disks.log_managers
        return len(managers) < len(self.disks) or any(one.fenced is not None for one in managers)

    def boot(self) -> None:
        """Begin with an empty memory."""
        self.boots += 1
        self.memory = MemDisk()

    def replace_disk(self, at: int) -> None:
        """With an empty one."""
        self.replaced += 1
        self.disks[at] = MemDisk()
        self.directory_ids[at] = f"dir-{self.number}-{at}-{self.replaced}"


@contextmanager
def readable(disk: MemDisk) -> Iterator[None]:
    """What looks at a disk from outside reads it whatever fails there meanwhile."""
    fails, exhausted = disk.reads_fail, disk.exhausted
    disk.reads_fail = disk.exhausted = False
    try:
        yield
    finally:
        disk.reads_fail, disk.exhausted = fails, exhausted


@dataclass
class CoordinatorReplica:
    """A coordinator's machine."""

    number: int
    host: Host
    process: CoordinatorProcess | None = None
    dead: list[CoordinatorProcess] = field(default_factory=list)


@dataclass
class Replica:
    """A controller's machine."""

    number: int
    host: Host
    process: ControllerProcess | None = None
    dead: list[ControllerProcess] = field(default_factory=list)


@dataclass
class FatalWrite:
    """Which of a controller's transactions is its last."""

    left: int
    """The n-th of those that count."""
    deadline: int
    counts: Callable[[], bool] = lambda: True

    def is_this(self, now: int) -> bool:
        """Whether it is the one that is committed now."""
        if now > self.deadline or not self.counts():
            return False
        self.left -= 1
        return self.left == 0
