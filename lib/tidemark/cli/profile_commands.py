"""``tidemark profile``: named settings, for clusters that are used again and again."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli import profiles, settings
from tidemark.cli.apps import command_group
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    OutputFormat,
    OutputOption,
    YesOption,
    confirm,
    print_rows,
    say,
)
from tidemark.cli.passwords import ask_password
from tidemark.runtime.exit_codes import ExitCode

app = command_group("Create, choose and show profiles: named settings.")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def complete_names(incomplete: str) -> list[str]:
    """Return the profiles that begin so."""
    try:
        names = profiles.read_profiles().profiles
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete)]


NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_names)]
ValuesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE...", help="Settings; see tidemark profile show."),
]


StoredPasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Store the first line of this file as sasl.password; - is stdin.",
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    values: ValuesArgument = None,
    *,
    use: Annotated[bool, typer.Option("--use", help="Make it the current profile.")] = False,
    password_file: StoredPasswordOption = None,
) -> None:
    """Create a profile. The first one becomes the current one."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} is not a name of a profile",
            hint="up to 64 letters, digits, dots, dashes and underscores",
            code=ExitCode.USAGE,
        )
    stored = profiles.read_profiles()
    if name in stored.profiles:
        raise CommandError(
            f"there is a profile {name!r} already", hint=f"tidemark profile set {name} KEY=VALUE"
        )
    given = settings.parse_given(values or (), "argument") | _password_in(password_file)
    added = stored.with_profile(name, given)
    current = name if use or not stored.profiles else stored.current
    profiles.write_profiles(profiles.Profiles(added.profiles, current))
    say(f"created profile {name}" + (", now the current one" if current == name else ""))


@app.command(name="set")
def set_values(
    name: NameArgument,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="KEY= removes a setting."),
    ] = None,
    *,
    password_file: StoredPasswordOption = None,
) -> None:
    """Change settings of a profile."""
    if not values and password_file is None:
        raise CommandError(
            "there is nothing to set", hint="KEY=VALUE, or --password-file", code=ExitCode.USAGE
        )
    values = values or []
    stored = profiles.read_profiles()
    kept = dict(stored.get(name))
    removed = [text[:-1] for text in values if text.endswith("=") and text.count("=") == 1]
    kept |= settings.parse_given([text for text in values if text[:-1] not in removed], "argument")
    kept |= _password_in(password_file)
    for key in removed:
        if kept.pop(key, None) is None:
            raise CommandError(f"profile {name!r} has no setting {key!r}", code=ExitCode.USAGE)
    profiles.write_profiles(stored.with_profile(name, kept))
    say(f"changed profile {name}")


@app.command(name="list")
def list_profiles(*, output: OutputOption = OutputFormat.TABLE) -> None:
    """List profiles."""
    stored = profiles.read_profiles()
    rows = [
        {"profile": name, "current": name == stored.current, "settings": _shown(values)}
        for name, values in stored.profiles.items()
    ]
    print_rows(rows, ("profile", "current", "settings"), output)


@app.command()
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=complete_names)
    ] = None,
    *,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
) -> None:
    """Make a profile the current one."""
    if none == (name is not None):
        raise CommandError(
            "name a profile, or pass --none", hint="tidemark profile list", code=ExitCode.USAGE
        )
    stored = profiles.read_profiles()
    if name is not None:
        stored.get(name)
    profiles.write_profiles(profiles.Profiles(stored.profiles, name))
    say("no profile is current" if name is None else f"{name} is the current profile")


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=complete_names)
    ] = None,
    *,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the settings of a profile; without a name, all settings with their sources."""
    if name is not None:
        values = profiles.read_profiles().get(name)
        rows = [{"setting": key, "value": each} for key, each in sorted(_shown(values).items())]
        print_rows(rows, ("setting", "value"), output)
        return
    rows = [
        {
            "setting": key,
            "value": profiles.shown(key, settings.look_up(key).value or "-"),
            "source": settings.look_up(key).source,
            "meaning": setting.purpose,
        }
        for key, setting in settings.SETTINGS.items()
    ]
    print_rows(rows, ("setting", "value", "source", "meaning"), output)


@app.command()
def delete(name: NameArgument, *, yes: YesOption = False) -> None:
    """Delete a profile."""
    stored = profiles.read_profiles()
    stored.get(name)
    confirm(f"Delete profile {name}?", yes=yes)
    profiles.write_profiles(stored.without(name))
    say(f"deleted profile {name}")


def _shown(values: Mapping[str, str]) -> dict[str, str]:
    return {name: profiles.shown(name, value) for name, value in values.items()}


def _password_in(file: Path | None) -> dict[str, str]:
    return {} if file is None else {"sasl.password": ask_password("the profile", file)}
