"""``tidemark acl``: access control lists. Commands import their work when run."""

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
from tidemark.model.acls import AclBinding
from tidemark.model.authorization import Resource

app = command_group("List, add, remove and check access control lists.")

PrincipalArgument = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="User:NAME, or NAME; User:* is everybody.")
]
OperationsArgument = Annotated[
    list[str],
    typer.Argument(metavar="OPERATION...", help="As read, write, describe, alter-configs, all."),
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Topic; * is every topic.")]
GroupOption = Annotated[str | None, typer.Option("--group", help="Group; * is every group.")]
TransactionalIdOption = Annotated[
    str | None, typer.Option("--transactional-id", help="Transactional id; * is every one.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="All resources whose names begin with the name.")
]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")]
HostOption = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="IP address of the client; * is every one.")
]


@app.command(name="list")
def list_acls(
    *,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Only of this principal.")
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List ACLs. With a resource, those that apply to it, prefixed ones and * too."""
    from tidemark.cli.acl import admin, bindings
    from tidemark.cli.client_calls import run
    from tidemark.model.acls import MATCH, AclFilter

    resource = bindings.read_resource(topic, group, transactional_id, cluster=cluster)
    wanted = AclFilter(principal=None if principal is None else bindings.read_principal(principal))
    if resource is not None:
        wanted = wanted._replace(
            resource_type=resource.resource_type, name=resource.name, pattern_type=MATCH
        )
    rows = run(admin.list_all(bootstrap_for(bootstrap), wanted))
    columns = ("resource", "name", "pattern", "principal", "host", "permission", "operation")
    print_rows(rows, columns, output)


@app.command()
def add(
    principal: PrincipalArgument,
    operations: OperationsArgument,
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    deny: DenyOption = False,
    host: HostOption = "*",
    bootstrap: BootstrapOption = None,
) -> None:
    """Allow a principal operations on a resource, or deny them."""
    from tidemark.cli.acl import admin, bindings
    from tidemark.cli.client_calls import run

    resource = bindings.read_resource(topic, group, transactional_id, cluster=cluster)
    wanted = _bindings(principal, operations, resource, prefixed=prefixed, deny=deny, host=host)
    run(admin.add(bootstrap_for(bootstrap), wanted))


@app.command()
def remove(
    principal: PrincipalArgument,
    operations: OperationsArgument,
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    deny: DenyOption = False,
    host: HostOption = "*",
    bootstrap: BootstrapOption = None,
    yes: YesOption = False,
) -> None:
    """Remove ACLs, each of them as it was added."""
    from tidemark.cli.acl import admin, bindings
    from tidemark.cli.client_calls import run
    from tidemark.plans.access import binding_words

    resource = bindings.read_resource(topic, group, transactional_id, cluster=cluster)
    wanted = _bindings(principal, operations, resource, prefixed=prefixed, deny=deny, host=host)
    confirm(f"Remove: {'; '.join(map(binding_words, wanted))}?", yes=yes)
    run(admin.remove(bootstrap_for(bootstrap), wanted))


@app.command()
def check(
    principal: PrincipalArgument,
    operation: Annotated[str, typer.Argument(metavar="OPERATION")],
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    host: HostOption = "",
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show whether a principal may do something, and which ACL decides. If not, exit with 1."""
    from tidemark.cli.acl import admin, bindings
    from tidemark.cli.client_calls import run
    from tidemark.model.authorization import Requester
    from tidemark.runtime.exit_codes import ExitCode

    resource = bindings.required(
        bindings.read_resource(topic, group, transactional_id, cluster=cluster)
    )
    asked = bindings.one_operation(operation, resource)
    requester = Requester(bindings.read_principal(principal), host)
    row = run(admin.check(bootstrap_for(bootstrap), requester, asked, resource))
    print_rows([row], ("principal", "operation", "resource", "allowed", "because", "acl"), output)
    if row["allowed"] == "no":
        raise typer.Exit(ExitCode.FAILED)


def _bindings(
    principal: str,
    operations: list[str],
    resource: Resource | None,
    *,
    prefixed: bool,
    deny: bool,
    host: str,
) -> list[AclBinding]:
    from tidemark.cli.acl import bindings
    from tidemark.model.acls import AclEntry, PatternType, Permission, ResourcePattern

    kind, name = bindings.required(resource)
    pattern = ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    permission = Permission.DENY if deny else Permission.ALLOW
    who = bindings.read_principal(principal)
    numbers = dict.fromkeys(map(bindings.read_operation, operations))
    return [AclBinding(pattern, AclEntry(who, host, one, permission)) for one in numbers]
