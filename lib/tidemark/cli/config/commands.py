"""``tidemark config``: settings of topics, brokers, groups and subscriptions to client metrics.

Commands import their work when run.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import complete_groups, complete_topics
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    bootstrap_for,
    print_rows,
)
from tidemark.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    from tidemark.client.admin.types import AlterConfig, ConfigResource

app = command_group("Show and change settings of topics, brokers, groups and client metrics.")

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="Of this topic.", autocompletion=complete_topics),
]
BrokerOption = Annotated[
    int | None, typer.Option("--broker", min=0, metavar="ID", help="Of this broker.")
]
BrokersOption = Annotated[
    bool, typer.Option("--brokers", help="The default of all brokers, while they run.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Of this group.", autocompletion=complete_groups),
]
ClientMetricsOption = Annotated[
    str | None,
    typer.Option(
        "--client-metrics",
        metavar="NAME",
        help="Of this subscription to metrics of clients (interval.ms, match, metrics).",
    ),
]
ValidateOnlyOption = Annotated[
    bool, typer.Option("--validate-only", help="Check only, change nothing.")
]
_COLUMNS = ("name", "value", "source", "default")
_CHANGED_COLUMNS = ("name", "before", "operation", "value", "outcome")


@app.command(name="list")
def list_settings(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    brokers: BrokersOption = False,
    group: GroupOption = None,
    client_metrics: ClientMetricsOption = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that have their default.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List settings that differ from their defaults, with the source of each value."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.config import admin

    resource = _resource(topic, broker, group, client_metrics, brokers=brokers)
    rows = run(admin.list_all(bootstrap_for(bootstrap), resource, defaults=everything))
    print_rows(rows, _COLUMNS, output)


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    brokers: BrokersOption = False,
    group: GroupOption = None,
    client_metrics: ClientMetricsOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show single settings."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.config import admin

    resource = _resource(topic, broker, group, client_metrics, brokers=brokers)
    print_rows(run(admin.get(bootstrap_for(bootstrap), resource, names)), _COLUMNS, output)


@app.command(name="set")
def set_settings(
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...")],
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    brokers: BrokersOption = False,
    group: GroupOption = None,
    client_metrics: ClientMetricsOption = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add the values to lists that are set.")
    ] = False,
    subtract: Annotated[
        bool, typer.Option("--subtract", help="Remove the values from lists that are set.")
    ] = False,
    validate_only: ValidateOnlyOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Change settings: all of them, or none if one is refused."""
    from tidemark.cli.topic.lines import parse_pairs
    from tidemark.client.admin.types import AlterConfig

    if append and subtract:
        raise CommandError("--append and --subtract cannot be combined", code=ExitCode.USAGE)
    resource = _resource(topic, broker, group, client_metrics, brokers=brokers)
    changes = [
        AlterConfig(name, value, "append" if append else "subtract" if subtract else "set")
        for name, value in parse_pairs(pairs, "argument").items()
    ]
    _change(bootstrap, resource, changes, output, validate_only=validate_only)


@app.command()
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    brokers: BrokersOption = False,
    group: GroupOption = None,
    client_metrics: ClientMetricsOption = None,
    validate_only: ValidateOnlyOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Remove settings, so that the next source of the value applies."""
    from tidemark.client.admin.types import AlterConfig

    resource = _resource(topic, broker, group, client_metrics, brokers=brokers)
    changes = [AlterConfig(name, operation="delete") for name in names]
    _change(bootstrap, resource, changes, output, validate_only=validate_only)


def _change(
    bootstrap: str | None,
    resource: "ConfigResource",
    changes: "list[AlterConfig]",
    output: OutputFormat,
    *,
    validate_only: bool,
) -> None:
    from tidemark.cli.client_calls import run
    from tidemark.cli.config import admin

    servers = bootstrap_for(bootstrap)
    rows = run(admin.change(servers, resource, changes, validate_only=validate_only))
    print_rows(rows, _CHANGED_COLUMNS, output)


def _resource(
    topic: str | None,
    broker: int | None,
    group: str | None,
    client_metrics: str | None,
    *,
    brokers: bool,
) -> "ConfigResource":
    """Return the one resource of the options. Raises CommandError for none or several."""
    from tidemark.client.admin.types import ConfigResource

    named = []
    if topic is not None:
        named.append(ConfigResource("topic", topic))
    if broker is not None:
        named.append(ConfigResource("broker", str(broker)))
    if group is not None:
        named.append(ConfigResource("group", group))
    if client_metrics is not None:
        named.append(ConfigResource("client-metrics", client_metrics))
    if brokers:
        named.append(ConfigResource("broker", ""))
    if len(named) != 1:
        raise CommandError(
            "name one of --topic, --broker, --brokers, --group and --client-metrics",
            hint="tidemark config list --topic TOPIC",
            code=ExitCode.USAGE,
        )
    return named[0]
