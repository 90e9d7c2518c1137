"""``tidemark share``: commands and their options. Commands import their work when run."""

from enum import StrEnum
from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import (
    SHARE_GROUP_STATES,
    ByDurationOption,
    ExecuteOption,
    ShareGroupArgument,
    ShareGroupsArgument,
    ToDatetimeOption,
    ToEarliestOption,
    ToLatestOption,
    ToOffsetOption,
    TopicArgument,
    TopicsArgument,
    among,
    seconds,
)
from tidemark.cli.failure import CommandError
from tidemark.cli.group.config import (
    SettingsOption,
    UnsetOption,
    ValidateOnlyOption,
    show_or_change,
)
from tidemark.cli.output import (
    BootstrapOption,
    GrpcBootstrapOption,
    OutputFormat,
    OutputOption,
    TransportChoice,
    YesOption,
    bootstrap_for,
    confirm,
    print_document,
    print_rows,
    printing_rows,
    say,
)

app = command_group("List, describe, consume and reset share groups.")

_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "start_offset",
    "lag",
    "leader_epoch",
    "members",
    "dead_letter_problem",
)
_COUNTS = (
    "start_offset",
    "end_offset",
    "lag",
    "available",
    "acquired",
    "acknowledged",
    "archiving",
    "archived",
    "behind",
    "oldest_age_ms",
    "dead_letter_problem",
)
_RANGE_COLUMNS = (
    "first_offset",
    "last_offset",
    "records",
    "state",
    "delivery_count",
    "member_id",
    "lock_left_ms",
    "next_state",
    "delay_left_ms",
    "producer_id",
)


_DELAY_S_MAX = 24 * 3_600  # of share.release.backoff.max.ms, which bounds every delay


class OutcomeChoice(StrEnum):
    """Outcome of consumed records."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


@app.command(name="list")
def list_groups(
    *,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only those in this state; may be repeated.")
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List share groups."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.share import admin

    states = among(state, SHARE_GROUP_STATES, "--state")
    rows = run(admin.list_all(bootstrap_for(bootstrap), states=states))
    print_rows(rows, ("group", "state", "coordinator"), output)


@app.command()
def describe(
    groups: ShareGroupsArgument,
    *,
    members: Annotated[
        bool, typer.Option("--members", "-m", help="Also show members and their partitions.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show members, start offsets and lag: the number of records whose delivery is not complete."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.share import admin

    rows = run(admin.describe(bootstrap_for(bootstrap), groups))
    if not output.is_table:
        print_document(rows, output)
        return
    for row in rows:
        say(f"{row['group']}: {row['state']}, {row['assignor']}, {len(row['members'])} members")
        if members:
            names = ("member", "client_id", "host", "epoch", "topics", "partitions")
            print_rows(row["members"], names, output)
        print_rows(row["partitions"], _PARTITION_COLUMNS, output)


@app.command()
def consume(
    group: ShareGroupArgument,
    topics: TopicsArgument,
    *,
    outcome: Annotated[
        OutcomeChoice, typer.Option("--outcome", help="Outcome of every record.")
    ] = OutcomeChoice.ACCEPT,
    delay_s: Annotated[
        float,
        typer.Option(
            "--release-delay",
            min=0,
            max=_DELAY_S_MAX,
            metavar="SECONDS",
            callback=seconds,
            help="With --outcome release: deliver the records again after this time.",
        ),
    ] = 0.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")
    ] = None,
    idle_s: Annotated[
        float | None,
        typer.Option(
            "--idle",
            min=0,
            metavar="SECONDS",
            callback=seconds,
            help="Stop after so long without any.",
        ),
    ] = None,
    template: Annotated[
        str,
        typer.Option(
            "--format",
            help="Of a line: {topic} {partition} {offset} {timestamp} {time} {key} {value}"
            " {headers} {delivery_count}, and \\t \\n.",
        ),
    ] = "{value}",
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print records as a member of the group; -o json prints a JSON object a line."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.share.consume import SHARE_FIELDS, ShareConsumeJob
    from tidemark.cli.share.consume import consume as consume_records
    from tidemark.cli.topic.formats import check_format
    from tidemark.client.share.ack_batches import AcknowledgeType

    if delay_s and outcome is not OutcomeChoice.RELEASE:
        raise typer.BadParameter("only with --outcome release", param_hint="--release-delay")
    job = ShareConsumeJob(
        bootstrap=bootstrap_for(bootstrap),
        group_id=group,
        topics=topics,
        outcome=AcknowledgeType[outcome.name],
        delay_ms=round(delay_s * 1_000),
        count=count,
        idle_ms_max=None if idle_s is None else int(idle_s * 1_000),
        template=check_format(template, SHARE_FIELDS) if output.is_table else None,
        output=output,
    )
    try:
        say(f"{run(consume_records(job)):,} records")
    except KeyboardInterrupt:
        say("")  # ends the line with ^C


@app.command()
def browse(
    group: ShareGroupArgument,
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    *,
    first: Annotated[int, typer.Option("--from", min=0, help="First offset.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", min=0, help="Last offset; default: the end.")
    ] = None,
    bootstrap: GrpcBootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show records in flight: state, deliveries, holder of the lock. Changes nothing."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.share import admin
    from tidemark.model.topics import TopicPartition

    at = TopicPartition(topic, partition)
    servers = bootstrap_for(bootstrap, TransportChoice.GRPC)
    row = run(admin.browse(servers, group, at, first=first, last=last))
    if not output.is_table:
        print_document(row, output)
        return
    print_rows([row], _COUNTS, output)
    print_rows(row["ranges"], _RANGE_COLUMNS, output)


@app.command()
def reset(
    group: ShareGroupArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:0,1]", help="Only these; default: all of the group."
        ),
    ] = None,
    to_earliest: ToEarliestOption = False,
    to_latest: ToLatestOption = False,
    to_offset: ToOffsetOption = None,
    to_datetime: ToDatetimeOption = None,
    by_duration: ByDurationOption = None,
    execute: ExecuteOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Deliver again from other offsets. Refused while the group has members."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.group.reset_options import parse_scope, target_of
    from tidemark.cli.share import admin

    target = target_of(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
    )
    scopes = [parse_scope(text) for text in topic or ()]
    rows = run(admin.reset(bootstrap_for(bootstrap), group, target, scopes, execute=execute))
    if not rows:
        raise CommandError(
            f"share group {group!r} has no offset to move",
            hint="pass --topic TOPIC to set its start in a topic",
        )
    print_rows(rows, ("topic", "partition", "before", "after", "outcome"), output)
    if not execute and output.is_table:
        say("nothing was changed; pass --execute to change it")


@app.command()
def delete(
    groups: ShareGroupsArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only what is kept of this topic; may be repeated."),
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete share groups without members, with their offsets."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.share import admin

    what = f"what is kept of {', '.join(topic)} in " if topic else ""
    confirm(f"Delete {what}{', '.join(groups)}?", yes=yes)
    rows: list[admin.Row] = []
    with printing_rows(rows, ("group", "outcome"), output):
        run(admin.delete(bootstrap_for(bootstrap), groups, topic or (), rows))


@app.command()
def config(
    group: ShareGroupArgument,
    *,
    settings: SettingsOption = None,
    unset: UnsetOption = None,
    validate_only: ValidateOnlyOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show or change a share group's configs. The group need not exist yet."""
    from tidemark.cli.share.admin import configs

    show_or_change(
        configs,
        group,
        settings=settings,
        unset=unset,
        validate_only=validate_only,
        bootstrap=bootstrap,
        output=output,
    )
