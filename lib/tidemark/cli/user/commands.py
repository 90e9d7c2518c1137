"""``tidemark user``: users that log in with SCRAM.

A password comes from a prompt, from stdin or from a file, never from the command line: others can
read that. Commands import their work when run.
"""

import enum
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_rows,
)
from tidemark.cli.passwords import PasswordFileOption, ask_password

app = command_group("List, add and remove users that log in with SCRAM.")


class MechanismName(enum.StrEnum):
    """Mechanisms of SCRAM."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


UserArgument = Annotated[str, typer.Argument(metavar="USER")]
MechanismOption = Annotated[
    list[MechanismName] | None,
    typer.Option("--mechanism", "-m", help="Only for this mechanism; default: for all."),
]


@app.command(name="list")
def list_users(
    *, bootstrap: BootstrapOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """List users with their mechanisms and iterations."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.user import admin

    rows = run(admin.list_all(bootstrap_for(bootstrap)))
    print_rows(rows, ("user", "mechanism", "iterations"), output)


@app.command()
def add(
    user: UserArgument,
    *,
    mechanism: MechanismOption = None,
    password_file: PasswordFileOption = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Add a user with a password."""
    _set_password(user, mechanism, password_file, bootstrap, must_exist=False)


@app.command(name="set-password")
def set_password(
    user: UserArgument,
    *,
    mechanism: MechanismOption = None,
    password_file: PasswordFileOption = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Give a user another password. Connections that are open stay open."""
    _set_password(user, mechanism, password_file, bootstrap, must_exist=True)


@app.command()
def remove(
    users: Annotated[list[str], typer.Argument(metavar="USER...")],
    *,
    bootstrap: BootstrapOption = None,
    yes: YesOption = False,
) -> None:
    """Remove users. Connections that are open stay open."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.user import admin

    confirm(f"Remove {', '.join(users)}?", yes=yes)
    run(admin.remove(bootstrap_for(bootstrap), users))


def _set_password(
    user: str,
    mechanisms: list[MechanismName] | None,
    password_file: Path | None,
    bootstrap: str | None,
    *,
    must_exist: bool,
) -> None:
    from tidemark.cli.client_calls import run
    from tidemark.cli.user import admin

    password = ask_password(user, password_file)
    names = [one.value for one in mechanisms or MechanismName]
    servers = bootstrap_for(bootstrap)
    run(admin.set_password(servers, user, password, names, must_exist=must_exist))
