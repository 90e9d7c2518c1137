"""``tidemark group config`` and ``tidemark share config``: options, and the work of both."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from tidemark.cli.failure import CommandError
from tidemark.cli.output import OutputFormat, bootstrap_for, print_rows
from tidemark.runtime.exit_codes import ExitCode

SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Set a config; may be repeated."),
]
UnsetOption = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="NAME", help="Use the brokers' value again; may be repeated."),
]
ValidateOnlyOption = Annotated[
    bool, typer.Option("--validate-only", help="Check only, change nothing.")
]


def show_or_change(
    configs: Callable[[str, str], Coroutine[Any, Any, list[dict[str, Any]]]],
    group: str,
    *,
    settings: list[str] | None,
    unset: list[str] | None,
    validate_only: bool,
    bootstrap: str | None,
    output: OutputFormat,
) -> None:
    """Change a group's configs, or without changes print the rows of ``configs(servers, group)``.

    Raises CommandError.
    """
    from tidemark.cli.client_calls import run
    from tidemark.cli.group import admin
    from tidemark.cli.topic.lines import parse_pairs
    from tidemark.client.admin.types import AlterConfig

    servers = bootstrap_for(bootstrap)
    pairs = parse_pairs(settings, "--config")
    changes = [AlterConfig(name, value) for name, value in pairs.items()]
    changes += [AlterConfig(name, operation="delete") for name in unset or []]
    if changes:
        run(admin.configure(servers, group, changes, validate_only=validate_only))
        outcome = "valid" if validate_only else "altered"
        print_rows([{"group": group, "outcome": outcome}], ("group", "outcome"), output)
        return
    if validate_only:
        raise CommandError(
            "nothing to check", hint="--config NAME=VALUE or --unset NAME", code=ExitCode.USAGE
        )
    print_rows(run(configs(servers, group)), ("name", "value", "source"), output)
