"""``tidemark share dead-letters``, from a controller. The command imports its work when run."""

from typing import Annotated

import typer

from tidemark.cli.output import OutputFormat, OutputOption, RestOption, print_rows, say
from tidemark.cli.share.commands import app

_LIMIT = 100


@app.command("dead-letters")
def dead_letters(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]")] = None,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=_LIMIT, help="Letters to show.")
    ] = _LIMIT,
    rest: RestOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show share groups that have a dead-letter queue; the latest letters of one group."""
    from tidemark.cli.operations.watch import instant
    from tidemark.cli.rest_client import rest_client, segment

    client = rest_client(rest)
    if group is None:
        rows = [
            {"group": one["group_id"], "queue": one["queue"], "state": one["state"]}
            for one in client.listed("/dead-letters")
        ]
        print_rows(rows, ("group", "queue", "state"), output)
        return
    found = client.cluster("GET", f"/dead-letters/{segment(group)}", limit=limit)
    rows = [
        {
            "topic": one["source_topic"],
            "partition": one["source_partition"],
            "offset": one["source_offset"],
            "deliveries": one["delivery_count"],
            "at": instant(one["timestamp_ms"]),
            "reason": one["reason"],
            "letter": f"{found['queue']}-{one['partition_id']} {one['offset']}",
        }
        for one in found["letters"]
    ]
    columns = ("topic", "partition", "offset", "deliveries", "at", "reason", "letter")
    print_rows(rows, columns, output)
    for one in found["waiting"]:
        place = f"{one['topic_name']}-{one['partition_id']}"
        say(f"{one['waiting']} letters of {place} wait: {one['problem'] or 'not copied yet'}")
