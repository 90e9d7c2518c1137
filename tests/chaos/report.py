"""The end of a run: what it proved, in a table for people and in JSON for programs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from chaos.counting import Unavailability
from chaos.history import Findings
from chaos.transactions import TransactionFindings

EXIT_HELD: Final = 0
EXIT_BROKEN: Final = 1
EXIT_PROVED_NOTHING: Final = 3

# Of a whole run, and not by the second: a busy machine does less, and proves as much.
ACKNOWLEDGED_LEAST: Final = 1_000
COMMITTED_LEAST: Final = 50
SHARED_LEAST: Final = 200
SHARE_COPIES_LEAST: Final = 10
ELECTIONS_LEAST: Final = 3
CONTROLLER_CHANGES_LEAST: Final = 1
COORDINATOR_CHANGES_LEAST: Final = 1
GROUP_MOVES_LEAST: Final = 1
ZOMBIES_LEAST: Final = 1
SESSION_EXPIRIES_LEAST: Final = 1
_EVIDENCE_LINES_MAX: Final = 20


@dataclass(frozen=True)
class TransactionFigures:
    """What happened to transactions. ``zombies``: copiers that hung, woke, and were refused;
    ``stuck``: in a call that did not return.
    Seconds: the longest time in which a producer committed nothing, and nothing was copied.
    """

    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    copied: int = 0
    zombies: int = 0
    coordinator_changes: int = 0
    group_moves: int = 0
    stuck: int = 0
    uncommitted_s: float = 0.0
    uncopied_s: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What happened. ``seconds``: from the first write offered to the last; ``rounds``: those of
    faults that were made as a whole.
    """

    seconds: float
    rounds: int
    acknowledged: int
    elections: int
    controller_changes: int
    session_expiries: int
    unavailability: Unavailability
    faults: Mapping[str, int] = field(default_factory=dict)
    transactions: TransactionFigures = field(default_factory=TransactionFigures)
    shared: int = 0
    """Records that members of the share group have finished."""
    share_copies: int = 0
    """Transactions of the share group's copier that were committed."""

    @property
    def acknowledged_s(self) -> float:
        """Writes acknowledged a second, on average, faults included."""
        return self.acknowledged / self.seconds if self.seconds > 0 else 0.0

    @property
    def committed_s(self) -> float:
        """Transactions committed a second, on average, faults included."""
        return self.transactions.committed / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Report:
    """Figures and findings. ``others``: promises that no history shows, such as healing in time."""

    seed: int
    figures: Figures
    findings: Findings
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    transactions: TransactionFindings = field(default_factory=TransactionFindings)

    def broken(self) -> dict[str, list[str]]:
        """Every promise that was not kept, with its evidence."""
        others = {promise: list(lines) for promise, lines in self.others.items() if lines}
        return {**self.findings.broken(), **self.transactions.broken(), **others}

    def lacking(self) -> list[str]:
        """Why the run proves nothing; empty when it proves something."""
        figures, transactions = self.figures, self.figures.transactions
        scale = max(1, figures.rounds)
        moves, group_moves = COORDINATOR_CHANGES_LEAST * scale, GROUP_MOVES_LEAST * scale
        asked = (
            ("acknowledged writes", figures.acknowledged, ACKNOWLEDGED_LEAST),
            ("elections", figures.elections, ELECTIONS_LEAST * scale),
            ("controller changes", figures.controller_changes, CONTROLLER_CHANGES_LEAST * scale),
            ("session expiries", figures.session_expiries, SESSION_EXPIRIES_LEAST * scale),
            ("committed transactions", transactions.committed, COMMITTED_LEAST),
            ("txn-coordinator changes", transactions.coordinator_changes, moves),
            ("group coordinator changes", transactions.group_moves, group_moves),
            ("copies", transactions.copied, 1),
            ("zombies refused", transactions.zombies, ZOMBIES_LEAST),
            ("records finished by the share group", figures.shared, SHARED_LEAST),
            ("copies from a share group", figures.share_copies, SHARE_COPIES_LEAST),
        )
        return [
            f"{what}: {found:g}, at least {least} are wanted"
            for what, found, least in asked
            if found < least
        ]

    def exit_code(self) -> int:
        """A broken promise outweighs all else."""
        if self.broken():
            return EXIT_BROKEN
        return EXIT_PROVED_NOTHING if self.lacking() else EXIT_HELD

    def rows(self) -> list[tuple[str, str]]:
        """Name and figure."""
        figures, findings = self.figures, self.findings
        gaps = figures.unavailability
        return [
            ("seed", str(self.seed)),
            ("seconds", f"{figures.seconds:.1f}"),
            ("acknowledged", f"{figures.acknowledged:,}"),
            ("acknowledged a second", f"{figures.acknowledged_s:,.1f}"),
            ("lost", str(len(findings.lost))),
            ("duplicated", str(len(findings.duplicated))),
            ("invented", str(len(findings.invented))),
            ("out of order", str(len(findings.out_of_order))),
            ("misplaced", str(len(findings.misplaced))),
            ("unsaid to a reader", str(len(findings.unsaid))),
            ("torn reads", str(len(findings.torn))),
            *self.transactions.rows(),
            *((promise, str(len(lines))) for promise, lines in self.others.items()),
            *self._transaction_rows(),
            ("finished by the share group", f"{figures.shared:,}"),
            ("copies from a share group", f"{figures.share_copies:,}"),
            ("unavailable, longest s", f"{gaps.longest_s:.1f}"),
            ("unavailable, p50 s", f"{gaps.p50_s:.1f}"),
            ("unavailable > 1 s, times", str(gaps.times)),
            ("elections", str(figures.elections)),
            ("controller changes", str(figures.controller_changes)),
            ("session expiries", str(figures.session_expiries)),
            *((kind, str(count)) for kind, count in sorted(figures.faults.items())),
        ]

    def _transaction_rows(self) -> list[tuple[str, str]]:
        figures = self.figures.transactions
        return [
            ("committed", f"{figures.committed:,}"),
            ("committed a second", f"{self.figures.committed_s:,.1f}"),
            ("aborted", f"{figures.aborted:,}"),
            ("outcome unknown", f"{figures.unknown:,}"),
            ("copied", f"{figures.copied:,}"),
            ("without a commit, longest s", f"{figures.uncommitted_s:.1f}"),
            ("without a copy, longest s", f"{figures.uncopied_s:.1f}"),
            ("zombies refused", str(figures.zombies)),
            ("copiers stuck", str(figures.stuck)),
            ("txn-coordinator changes", str(figures.coordinator_changes)),
            ("group coordinator changes", str(figures.group_moves)),
        ]

    def lines(self) -> Iterator[str]:
        """The table, aligned, and the verdict."""
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        digits = max(len(figure) for _, figure in rows)
        yield from (f"{name:<{width}}  {figure:>{digits}}" for name, figure in rows)
        yield from self._verdict()

    def _verdict(self) -> Iterator[str]:
        broken, lacking = self.broken(), self.lacking()
        for promise, evidence in broken.items():
            yield f"BROKEN: {promise}, {len(evidence)} times"
            yield from (f"  {line}" for line in evidence[:_EVIDENCE_LINES_MAX])
            if len(evidence) > _EVIDENCE_LINES_MAX:
                yield f"  and {len(evidence) - _EVIDENCE_LINES_MAX} more"
        yield from (f"proved nothing: {reason}" for reason in lacking)
        if not broken and not lacking:
            yield "all promises were kept"

    def content(self) -> dict[str, object]:
        """For JSON."""
        figures = self.figures
        return {
            "seed": self.seed,
            "exit_code": self.exit_code(),
            "figures": {
                **asdict(figures),
                "acknowledged_s": figures.acknowledged_s,
                "committed_s": figures.committed_s,
                "unavailability": figures.unavailability._asdict(),
            },
            "findings": asdict(self.findings),
            "transactions": asdict(self.transactions),
            "others": {promise: list(lines) for promise, lines in self.others.items()},
            "broken": sorted(self.broken()),
            "lacking": self.lacking(),
        }
