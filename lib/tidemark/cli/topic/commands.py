"""``tidemark topic``: commands and their options. Commands import their work when run."""

from enum import StrEnum
from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import TopicArgument, TopicsArgument
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    Row,
    TransportChoice,
    TransportOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_document,
    print_rows,
    printing_rows,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

app = command_group("Create, describe, change, write and read topics.")

NewTopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...")]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Set a config; may be repeated."),
]

InputFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help="Of a record: json, as consume prints it, or fields and text between: '%k:%v'"
        " (%p %T %k %v %h; {hex}, {base64} or {json} after %k and %v).",
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="Header of every record; may be repeated."
    ),
]


class Compression(StrEnum):
    """Codec of sent batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Acknowledgements to wait for."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


@app.command()
def create(
    topics: NewTopicsArgument,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="-1: the cluster's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="-1: the cluster's default.")
    ] = -1,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check only, create nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create topics."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import admin
    from tidemark.cli.topic.lines import parse_pairs
    from tidemark.client.admin.types import NewTopic

    configs = parse_pairs(config, "--config")
    wanted = [NewTopic(name, partitions, replication_factor, configs) for name in topics]
    rows: list[Row] = []
    call = admin.create(
        bootstrap_for(bootstrap),
        wanted,
        rows,
        validate_only=validate_only,
        if_not_exists=if_not_exists,
    )
    columns = ("topic", "outcome", "partitions", "replication_factor", "topic_id")
    with printing_rows(rows, columns, output):
        run(call)


@app.command(name="list")
def list_topics(
    *,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also show internal topics.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List topics."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import admin

    rows = run(admin.list_all(bootstrap_for(bootstrap), internal=internal))
    print_rows(rows, ("topic", "partitions", "replication_factor", "leaderless"), output)


@app.command()
def describe(
    topics: TopicsArgument,
    *,
    all_configs: Annotated[
        bool, typer.Option("--all", "-a", help="Show all configs, not only those set on the topic.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show partitions, leaders, replicas and configs of topics."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import admin

    rows = run(admin.describe(bootstrap_for(bootstrap), topics, all_configs=all_configs))
    if not output.is_table:
        print_document(rows, output)
        return
    for row in rows:
        partitions, configs = row["partitions"], row["configs"]
        assert isinstance(partitions, list), "admin.describe gives a list"
        assert isinstance(configs, dict), "admin.describe gives a dict"
        typer.echo(f"{row['topic']}  id {row['topic_id']}  {len(partitions)} partitions")
        for name, value in configs.items():
            typer.echo(f"  {name}={value}")
        print_rows(partitions, ("partition", "leader", "leader_epoch", "replicas", "isr"), output)


@app.command()
def alter(
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="Increase the number of partitions to this total."),
    ] = None,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Use the default again; may be repeated."),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check only, change nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Change a topic's configs, or raise its number of partitions."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import admin
    from tidemark.cli.topic.lines import parse_pairs
    from tidemark.client.admin.types import AlterConfig

    changes = [AlterConfig(name, value) for name, value in parse_pairs(config, "--config").items()]
    changes += [AlterConfig(name, operation="delete") for name in unset or []]
    if not changes and partitions is None:
        raise CommandError(
            "nothing to change",
            hint="--partitions N, --config NAME=VALUE or --unset NAME",
            code=ExitCode.USAGE,
        )
    servers = bootstrap_for(bootstrap)
    run(
        admin.alter(
            servers, topic, partitions=partitions, changes=changes, validate_only=validate_only
        )
    )
    outcome = "valid" if validate_only else "altered"
    print_rows([{"topic": topic, "outcome": outcome}], ("topic", "outcome"), output)


@app.command()
def delete(
    topics: TopicsArgument,
    *,
    yes: YesOption = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete topics and all their records."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic import admin

    confirm(f"Delete {', '.join(topics)} and all records in them?", yes=yes)
    rows: list[Row] = []
    with printing_rows(rows, ("topic", "outcome"), output):
        run(admin.delete(bootstrap_for(bootstrap), topics, rows, if_exists=if_exists))


@app.command()
def produce(
    topic: TopicArgument,
    *,
    file: Annotated[
        str, typer.Option("--file", "-i", help="Lines to send, plain or gzip; - is stdin.")
    ] = "-",
    template: InputFormatOption = None,
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="With -f json: to the partitions of the input."),
    ] = False,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", help="Separator of a line's key and value."),
    ] = None,
    key_regex: Annotated[
        str | None,
        typer.Option(
            "--key-regex", help="Expression whose match (or first group) is a line's key."
        ),
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option("--null", help="Text of a null key or value.")
    ] = None,
    header: HeaderOption = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, help="Partition of all records; default: by key."),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec of batches.")
    ] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Acknowledgements to wait for.")] = Acks.ALL,
    transport: TransportOption = TransportChoice.KAFKA,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Send lines as records, and wait until all are acknowledged."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic.lines import key_rule, parse_pairs, reader_for
    from tidemark.cli.topic.produce import ProduceJob, Sent, produce, report

    headers = parse_pairs(header, "--header")
    rule = key_rule(key_separator, key_regex, null_marker)
    read, end = reader_for(template, rule, keep_partitions=keep_partitions)
    job = ProduceJob(
        bootstrap=bootstrap_for(bootstrap, transport),
        topic=topic,
        source=file,
        read=read,
        end=end,
        headers=[(name, value.encode()) for name, value in headers.items()],
        partition=partition,
        settings={
            "transport": transport.value,
            "compression_type": compression.value,
            "acks": acks.value if acks is Acks.ALL else int(acks.value),
        },
    )
    sent = Sent()
    run(produce(job, sent), api="Produce", address=job.bootstrap)
    if not output.is_table:
        counts = {"records": sent.records, "bytes": sent.bytes, "seconds": sent.seconds}
        print_document({"topic": topic, **counts}, output)
    else:
        report(job, sent)


@app.command()
def consume(
    topic: TopicArgument,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="earliest, latest, an offset, @milliseconds, or a time (ISO 8601)."
        ),
    ] = "latest",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the current end of the log.")
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    template: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="json; or as kcat: '%k %v\\n' (%t %p %o %T %k %v %h %K %V; {hex}, {base64} or"
            " {json} after %k, %v and %h); or a line: {topic} {partition} {offset} {timestamp}"
            " {time} {key} {value} {headers}.",
        ),
    ] = "{value}",
    rack: Annotated[
        str | None,
        typer.Option(
            help="Rack of this reader (client.rack): read from followers in it, where brokers have"
            " a replica.selector.class."
        ),
    ] = None,
    transport: TransportOption = TransportChoice.KAFKA,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print records until Ctrl-C, a count, or the end; -o json prints a JSON object a line."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.topic.consume import ConsumeJob, Read, consume, report
    from tidemark.cli.topic.formats import parse_start, printer_for

    if rack and transport is not TransportChoice.KAFKA:
        raise CommandError(
            f"--rack {rack}: over gRPC, records are read from leaders",
            hint="leave out --transport, or --rack",
            code=ExitCode.USAGE,
        )
    job = ConsumeJob(
        bootstrap=bootstrap_for(bootstrap, transport),
        topic=topic,
        start=parse_start(start),
        partitions=sorted(set(partition or [])),
        count=count,
        until_end=until_end,
        printer=printer_for(template, output),
        settings={"transport": transport.value, "client_rack": rack},
    )
    read = Read()
    try:
        run(consume(job, read), api="Fetch", address=job.bootstrap)
    except KeyboardInterrupt:
        say("")  # ends the line with ^C
    report(job, read)
