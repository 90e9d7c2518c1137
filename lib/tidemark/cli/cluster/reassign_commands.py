"""``tidemark cluster reassign``: plan, apply, watch and cancel moves of replicas."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import seconds
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    bootstrap_for,
    print_document,
    print_line_document,
    print_rows,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from tidemark.cli.cluster.reassign_watch import MoveState
    from tidemark.model.topics import TopicPartition
    from tidemark.plans.reassignment import Move

app = command_group("Move replicas: plan, apply, watch, cancel.")

MOVES_SHOWN_MAX: Final = 20
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Kafka's reassignment JSON; - reads stdin.")
]


@app.command()
def plan(
    *,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="May be repeated; default: all.")
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="1,2,3", help="Brokers for replicas; default: all live ones."),
    ] = None,
    remove_broker: Annotated[
        list[int] | None,
        typer.Option(help="Move all replicas of this broker away, and no others; may be repeated."),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compute a plan that balances replicas and leaders. Changes nothing.

    With -o json (or yaml, of which JSON is a part), prints the plan in the form that apply takes.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import reassign_admin, reassign_file

    if brokers is not None and remove_broker:
        raise CommandError(
            "--brokers and --remove-broker cannot be combined",
            hint="--brokers lists the brokers for replicas; --remove-broker the brokers without",
            code=ExitCode.USAGE,
        )
    target = reassign_admin.Target(topic or (), _broker_ids(brokers), remove_broker or ())
    found = run(reassign_admin.plan(bootstrap_for(bootstrap), target))
    for note in found.notes:
        say(f"note: {note}")
    if not output.is_table:
        sys.stdout.write(
            reassign_file.text_of({move.partition: move.after for move in found.moves}) + "\n"
        )
    elif found.moves:
        print_rows(
            [_planned_row(move) for move in found.moves],
            ("topic", "partition", "now", "planned", "adding", "removing"),
            output,
        )
    say(_summary(found.moves))


@app.command()
def apply(
    file: FileArgument,
    *,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES/S", help="Maximum for each broker.")
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Allow other moves to be under way.")
    ] = False,
    allow_rf_change: Annotated[
        bool,
        typer.Option("--allow-replication-factor-change", help="Allow more or fewer replicas."),
    ] = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Start the moves of a plan. Prints the old placement, as a plan to go back to."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import reassign_admin, reassign_file

    read = reassign_file.read_plan(file)
    order = reassign_admin.Order(
        read.target, throttle, additional, allow_rf_change, read.directories
    )

    def save(before: "reassign_admin.Assignment") -> None:
        sys.stdout.write(reassign_file.text_of(before) + "\n")
        sys.stdout.flush()

    if not order.target:
        save({})
        say("the plan moves nothing")
        return
    outcome = run(reassign_admin.apply(bootstrap_for(bootstrap), order, save))
    if outcome.failures:
        raise reassign_admin.refused(outcome.failures, len(order.target))
    say(f"{len(order.target)} moves started; the output is a plan to go back to the old placement")
    say("  watch them to the end: tidemark cluster reassign watch " + ("" if file == "-" else file))
    if throttle is not None:
        say("  the throttle stays until then; watch removes it")


@app.command()
def watch(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="The plan; default: all moves.")
    ] = None,
    *,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", callback=seconds)] = 1.0,
    keep_throttle: Annotated[
        bool, typer.Option("--keep-throttle", help="Do not remove the throttle at the end.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show moves until all are done, then remove the throttle. Exit code 1 if partitions of the
    plan are not where it puts them.

    With -o json, prints a line for each check.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import reassign_file, reassign_watch

    target = None if file is None else reassign_file.read_file(file)
    screen = _Screen(output)
    asked = reassign_watch.Watch(target, interval, keep_throttle)
    ending = run(reassign_watch.watch(bootstrap_for(bootstrap), asked, screen.show))
    screen.end(ending.unthrottled)
    for name, replicas in sorted(ending.elsewhere.items()):
        wanted = "" if target is None else f", not on {_ids(target[name])}"
        say(f"{name} is on {_ids(replicas) or 'no broker'}{wanted}")
    if ending.elsewhere and target is not None:
        raise CommandError(
            f"{len(ending.elsewhere)} partitions are not where the plan puts them, and do not move",
            hint="apply the plan; it may have been cancelled, or changed by another command",
        )


@app.command()
def cancel(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE|TOPIC:PARTITION...]", help="A plan, or partitions."),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every move under way.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Cancel moves: the old replicas stay. The throttle is removed with the last move."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.cluster import reassign_admin

    if everything == bool(names):
        raise CommandError(
            "name a plan, or partitions as topic:partition, or --all",
            hint="`tidemark cluster reassign watch` shows the moves under way",
            code=ExitCode.USAGE,
        )
    wanted = None if everything else _named(names or [])
    done = run(reassign_admin.cancel(bootstrap_for(bootstrap), wanted))
    if not output.is_table:
        print_document(done, output)
        return
    say(f"cancelled: {' '.join(done['cancelled'])}")
    if done["not_moving"]:
        say(f"not moving: {' '.join(done['not_moving'])}")
    if done["unthrottled"]:
        say(f"throttle removed from {', '.join(done['unthrottled'])}")


# -- arguments


def _broker_ids(text: str | None) -> list[int]:
    ids = [] if text is None else [one.strip() for one in text.split(",")]
    if not all(one.isascii() and one.isdecimal() for one in ids) or len(set(ids)) != len(ids):
        raise CommandError(
            f"--brokers {text}: not a list of broker ids",
            hint="name each once: --brokers 1,2,3",
            code=ExitCode.USAGE,
        )
    return [int(one) for one in ids]


def _named(names: list[str]) -> "list[TopicPartition]":
    """Read one plan, or partitions."""
    from tidemark.cli.cluster import reassign_file
    from tidemark.cli.partition_names import partition_named

    if len(names) == 1 and (names[0] == reassign_file.STDIN or Path(names[0]).is_file()):
        return list(reassign_file.read_file(names[0]))
    return [partition_named(name, what="neither a file nor topic:partition") for name in names]


# -- output


def _planned_row(move: "Move") -> dict[str, object]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "now": _ids(move.before),
        "planned": _ids(move.after),
        "adding": _ids(move.adding) or None,
        "removing": _ids(move.removing) or None,
    }


def _summary(moves: "Sequence[Move]") -> str:
    if not moves:
        return "no replica needs to move"
    copies = sum(len(move.adding) for move in moves)
    leaders = sum(move.before[0] != move.after[0] for move in moves)
    return (
        f"{len(moves)} partitions change: {copies} replicas to copy,"
        f" {leaders} other preferred leaders"
    )


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


class _Screen:
    """Output of ``watch``: lines when they change, or a JSON object for each check."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output
        self._lines: list[str] = []
        self._looked = False

    async def show(self, moves: "Sequence[MoveState]") -> None:
        """Show the moves of one check."""
        from tidemark.cli.cluster.reassign_watch import percent

        if not self._output.is_table:
            print_line_document({"moving": [move.row() for move in moves]}, self._output)
            return
        lines = [_progress_line(move) for move in moves[:MOVES_SHOWN_MAX]]
        if lines != self._lines and moves:
            say(f"{len(moves)} partitions move, {percent(moves)} % copied")
            for line in lines:
                say(f"  {line}")
            if len(moves) > MOVES_SHOWN_MAX:
                say(f"  and {len(moves) - MOVES_SHOWN_MAX} more")
        self._lines, self._looked = lines, self._looked or bool(moves)

    def end(self, unthrottled: Sequence[str]) -> None:
        """Show the end of all moves."""
        if not self._output.is_table:
            print_line_document({"moving": [], "unthrottled": list(unthrottled)}, self._output)
            return
        say("all moves are done" if self._looked else "nothing moves")
        if unthrottled:
            say(f"throttle removed from {', '.join(unthrottled)}")


def _progress_line(move: "MoveState") -> str:
    parts = [str(move.partition)]
    for one in move.copies:
        far = "?" if one.behind is None else f"{one.percent} %, {one.behind:,} offsets behind"
        parts.append(f"+{one.broker} ({far})")
    parts += [f"-{one}" for one in move.removing]
    return "  ".join(parts)
