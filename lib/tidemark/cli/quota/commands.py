"""``tidemark quota``: how much clients may use. Commands import their work when run."""

from typing import Annotated

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_rows,
)
from tidemark.model.errors import TidemarkError
from tidemark.model.quotas import DEFAULT, QuotaEntity, check_key, read_value
from tidemark.runtime.exit_codes import ExitCode

app = command_group("List, set and remove quotas of clients.")

UserOption = Annotated[str | None, typer.Option("--user", metavar="USER", help="Of this user.")]
ClientOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="Of this client id.")
]
AddressOption = Annotated[str | None, typer.Option("--ip", metavar="IP", help="Of this address.")]
UserDefaultOption = Annotated[
    bool, typer.Option("--user-default", help="Of users without a quota of their own.")
]
ClientDefaultOption = Annotated[
    bool, typer.Option("--client-id-default", help="Of client ids without a quota of their own.")
]
AddressDefaultOption = Annotated[
    bool, typer.Option("--ip-default", help="Of addresses without a quota of their own.")
]


@app.command(name="list")
def list_quotas(
    *,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: AddressOption = None,
    user_default: UserDefaultOption = False,
    client_id_default: ClientDefaultOption = False,
    ip_default: AddressDefaultOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List quotas: all, or those of entities with these parts."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.quota import admin

    wanted = QuotaEntity(
        part_of("user", user, is_default=user_default),
        part_of("client-id", client_id, is_default=client_id_default),
        part_of("ip", ip, is_default=ip_default),
    )
    rows = run(admin.list_all(bootstrap_for(bootstrap), wanted))
    print_rows(rows, ("user", "client-id", "ip", "quota", "value"), output)


@app.command(name="set")
def set_quotas(
    values: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")],
    *,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: AddressOption = None,
    user_default: UserDefaultOption = False,
    client_id_default: ClientDefaultOption = False,
    ip_default: AddressDefaultOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Set quotas of an entity, such as producer_byte_rate=1048576. Others stay."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.quota import admin

    entity = named(
        QuotaEntity(
            part_of("user", user, is_default=user_default),
            part_of("client-id", client_id, is_default=client_id_default),
            part_of("ip", ip, is_default=ip_default),
        )
    )
    wanted = dict(value_of(entity, one) for one in values)
    run(admin.set_values(bootstrap_for(bootstrap), entity, wanted))


@app.command()
def remove(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]")] = None,
    *,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: AddressOption = None,
    user_default: UserDefaultOption = False,
    client_id_default: ClientDefaultOption = False,
    ip_default: AddressDefaultOption = False,
    bootstrap: BootstrapOption = None,
    yes: YesOption = False,
) -> None:
    """Remove quotas of an entity: these, or all."""
    from tidemark.cli.client_calls import run
    from tidemark.cli.quota import admin

    entity = named(
        QuotaEntity(
            part_of("user", user, is_default=user_default),
            part_of("client-id", client_id, is_default=client_id_default),
            part_of("ip", ip, is_default=ip_default),
        )
    )
    confirm(f"Remove {', '.join(keys or ['all quotas'])} of {admin.name_of(entity)}?", yes=yes)
    run(admin.remove(bootstrap_for(bootstrap), entity, keys or []))


def part_of(entity_type: str, name: str | None, *, is_default: bool) -> str | None:
    """Return a part of an entity. Raises CommandError for a name together with the default."""
    if is_default and name is not None:
        raise CommandError(
            f"--{entity_type} and --{entity_type}-default exclude one another", code=ExitCode.USAGE
        )
    if name == "":
        raise CommandError(
            f"the {entity_type} is empty",
            hint=f"--{entity_type}-default for the default",
            code=ExitCode.USAGE,
        )
    return DEFAULT if is_default else name


def named(entity: QuotaEntity) -> QuotaEntity:
    """Return an entity that has parts. Raises CommandError."""
    if not entity.parts:
        raise CommandError(
            "whose quotas?", hint="--user, --client-id, both, or --ip", code=ExitCode.USAGE
        )
    return entity


def value_of(entity: QuotaEntity, text: str) -> tuple[str, float]:
    """Return key and value of ``KEY=VALUE``. Raises CommandError."""
    key, _, number = text.partition("=")
    try:
        check_key(entity, key)
        return key, read_value(key, float(number))
    except ValueError:
        words = f"{text!r} is not KEY=VALUE with a number"
        raise CommandError(words, code=ExitCode.USAGE) from None
    except TidemarkError as refused:
        raise CommandError(refused.message, code=ExitCode.USAGE) from None
