"""What the demonstration shows at its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from demo_faults import Strike
from demo_proof import Tale
from rich.console import Console
from rich.table import Table

_MIB: Final = 1024 * 1024
_ESTABLISHED: Final = "01"
# The problem as it was posed (R01, R02).
_POSED: Final = (50_000, 500, 1_000)


class Tiers(NamedTuple):
    """Who connects to whom: servers, tasks between the topics, partitions of the target."""

    servers: int
    tasks: int
    partitions: int

    @property
    def direct(self) -> int:
        """Every server writes to every partition."""
        return self.servers * self.partitions

    @property
    def between(self) -> int:
        """Every server writes to one partition of topic A, every task to all of topic B."""
        return self.servers + self.tasks * self.partitions

    def __str__(self) -> str:
        return (
            f"{self.servers:,} servers, {self.partitions:,} partitions: directly {self.direct:,};"
            f" over topic A and {self.tasks:,} tasks {self.servers:,} + {self.tasks:,} x"
            f" {self.partitions:,} = {self.between:,}"
        )


def connection_lines(run: Tiers, seen: Mapping[str, int]) -> list[str]:
    """The arithmetic of R10, for this run and as it was posed, and what was counted."""
    counted = ", ".join(f"{count} while {phase}" for phase, count in seen.items())
    return [
        "connections, one for each (client, partition):",
        f"  this run:     {run}",
        f"  as posed:     {Tiers(*_POSED)}",
        f"  TCP connections to the brokers, counted (one for each client and broker): {counted}",
    ]


def connections(ports: Sequence[int]) -> int:
    """Established now, from loopback, to these ports."""
    wanted = {f"{port:04X}" for port in ports}
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(each[3] == _ESTABLISHED and each[2].rpartition(":")[2] in wanted for each in fields)


def show_topics(console: Console, tales: Mapping[str, Tale]) -> None:
    """What went in and came back."""
    table = Table(box=None, pad_edge=False)
    columns = ("records", "equal to an earlier one", "keys", "MiB", "records/s", "MiB/s")
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, tale in tales.items():
        table.add_row(
            name,
            f"{tale.records:,}",
            f"{tale.repeats:,}",
            f"{len(tale.places):,}",
            f"{tale.total_bytes / _MIB:,.1f}",
            f"{tale.records / tale.seconds:,.0f}",
            f"{tale.total_bytes / _MIB / tale.seconds:,.1f}",
        )
    console.print()
    console.print(table)


def show_faults(
    console: Console, strikes: Sequence[Strike], runs: Mapping[int, int], tries: Mapping[int, int]
) -> None:
    """Each fault with its batch: who died, at which step, and what the batch went through."""
    if not strikes:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("fault", "batch", "step", "kill -9", "just before", "unfinished"):
        table.add_column(column)
    table.add_column("runs", justify="right")
    table.add_column("tries of a task", justify="right")
    for each in strikes:
        table.add_row(
            each.name,
            str(each.batch_id),
            each.step,
            each.killed,
            each.transaction,
            "yes" if each.unfinished else "NO",
            str(runs[each.batch_id]),
            str(tries[each.batch_id]),
        )
    console.print()
    console.print(table)
