"""Arguments that many commands have, with completion of their names in the shell."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Annotated, Final

import typer

from tidemark.cli import settings
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

_COMPLETION_MS_MAX: Final = 1_500
"""Time for which a shell waits for names."""


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin so; none without a cluster."""
    return _names(ctx, incomplete, kinds=None)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the consumer groups that begin so."""
    return _names(ctx, incomplete, kinds=("classic", "consumer"))


def complete_share_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the share groups that begin so."""
    return _names(ctx, incomplete, kinds=("share",))


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics)]
TopicsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", autocompletion=complete_topics)
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups)]
GroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP...", autocompletion=complete_groups)
]
ShareGroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=complete_share_groups)
]
ShareGroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP...", autocompletion=complete_share_groups)
]


def _names(ctx: typer.Context, incomplete: str, *, kinds: Iterable[str] | None) -> list[str]:
    """Return names from the cluster that begin with ``incomplete``; none if it does not answer."""
    import asyncio

    from tidemark.client.errors import ClientError

    root = ctx.find_root().params
    given = [*(root.get("given") or ()), f"timeout-ms={_COMPLETION_MS_MAX}"]
    try:
        settings.begin(given, root.get("profile"), quiet=True)
        servers = ctx.params.get("bootstrap") or settings.address("bootstrap")
        names = asyncio.run(_listed(servers, kinds))
    except (ClientError, CommandError, OSError, BaseExceptionGroup):
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _listed(servers: str, kinds: Iterable[str] | None) -> list[str]:
    from tidemark.cli.admin_client import open_admin

    async with open_admin(servers) as admin:
        if kinds is None:
            return await admin.list_topics()
        return [each.group_id for each in await admin.list_groups(kinds=kinds)]


def seconds(value: float | None) -> float | None:
    """Return the value of an option in seconds, which are finite: ``nan`` and ``inf`` are floats
    too. For ``callback``; raises BadParameter.
    """
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


# -- filters of lists

GROUP_STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Dead",
)
"""Kafka's names of the states of groups of every kind."""
SHARE_GROUP_STATES: Final = ("Empty", "Stable", "Dead")
GROUP_KINDS: Final = ("classic", "consumer", "share")


def among(given: Iterable[str] | None, known: Sequence[str], option: str) -> list[str]:
    """Return the names, in any case of letters. Raises CommandError for one that nothing can have:
    the list would be empty, as if there were no groups.
    """
    lower = {name.lower() for name in known}
    names = list(given or ())
    for name in names:
        if name.lower() not in lower:
            raise CommandError(
                f"{option} {name!r} is not one of its values",
                hint=", ".join(known),
                code=ExitCode.USAGE,
            )
    return names


# -- resets of offsets

ToEarliestOption = Annotated[bool, typer.Option("--to-earliest", help="To the log start.")]
ToLatestOption = Annotated[bool, typer.Option("--to-latest", help="To the log end.")]
ToOffsetOption = Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")]
ToDatetimeOption = Annotated[
    str | None, typer.Option("--to-datetime", help="To the first record since then (ISO 8601).")
]
ByDurationOption = Annotated[
    str | None, typer.Option("--by-duration", help="To this long before now (ISO 8601: PT2H).")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute/--dry-run", help="Change, or only show (the default).")
]
