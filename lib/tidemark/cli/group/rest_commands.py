"""``tidemark group lag``, from a controller. The command imports its work when run."""

from typing import Annotated

import typer

from tidemark.cli.group.commands import app
from tidemark.cli.output import OutputFormat, OutputOption, RestOption, print_rows, say

_LIMIT = 10


@app.command()
def lag(
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=_LIMIT, help="Groups to show.")
    ] = _LIMIT,
    rest: RestOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the groups with the largest lag; with their sum over all groups on stderr."""
    from tidemark.cli.rest_client import rest_client

    found = rest_client(rest).cluster("GET", "/group-lag", limit=limit)
    rows = [
        {
            "group": one["group_id"],
            "lag": one["lag"],
            "unknown": one["unknown"],
            "members": one["members"],
        }
        for one in found["groups"]
    ]
    print_rows(rows, ("group", "lag", "unknown", "members"), output)
    for one in found["problems"]:
        say(f"missing {one['item']}: {one['message']}")
    if output.is_table:
        say(f"{found['groups_count']} groups have a lag of {found['lag']} records together")
