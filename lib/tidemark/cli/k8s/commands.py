"""``tidemark k8s``: a release of the chart on Kubernetes. Commands import their work when run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.cli.apps import command_group
from tidemark.cli.arguments import seconds
from tidemark.cli.failure import CommandError
from tidemark.cli.output import (
    BootstrapOption,
    OutputFormat,
    OutputOption,
    YesOption,
    bootstrap_for,
    confirm,
    print_rows,
    say,
)
from tidemark.runtime.exit_codes import ExitCode

app = command_group("Show a release of the Helm chart, restart its pods, replace a lost node.")

ReleaseArgument = Annotated[str, typer.Argument(metavar="RELEASE", help="Name of the release.")]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the release.")
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig", metavar="PATH", help="Default: $KUBECONFIG, ~/.kube/config; in a pod none."
    ),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait", min=0, metavar="SECONDS", callback=seconds, help="Wait for the authority."
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0,
        metavar="SECONDS",
        callback=seconds,
        help="End after this time, with 75.",
    ),
]


@app.command()
def status(
    release: ReleaseArgument,
    *,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the pods of a release, where their volumes are, and what is wrong.

    Exit code 1 unless every pod is ready, every broker alive and every replica in sync.
    """
    from tidemark.cli.k8s import calls

    with calls.failures(release, namespace):
        work = calls.open_work(release, namespace, calls.Place(kubeconfig, context), None)
        rows, problems = calls.status(work)
    print_rows(rows, ("pod", "state", "node", "volume_node", "revision", "problem"), output)
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def roll(
    release: ReleaseArgument,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Restart every pod, also those that are up to date.")
    ] = False,
    timeout: TimeoutOption = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Restart the pods that an upgrade has changed, one at a time, each when nothing is at risk.

    Before each, every pod is ready, every broker alive, every replica in sync, and a controller
    agrees. It may be ended and run again at any time. StatefulSets with the update strategy
    RollingUpdate are restarted by Kubernetes; the command waits for them.
    """
    from tidemark.cli.k8s import calls

    with calls.failures(release, namespace):
        work = calls.open_work(release, namespace, calls.Place(kubeconfig, context), timeout)
        count = work.roll(again=everything)
    say(f"{count} pods restarted; every pod is ready, every replica in sync")


@app.command("can-scale")
def can_scale(
    release: ReleaseArgument,
    *,
    brokers: Annotated[
        int, typer.Option("--brokers", min=1, metavar="NUMBER", help="Brokers that shall be left.")
    ],
    timeout: TimeoutOption = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Fail while a broker that would be removed has replicas. The chart runs it before an upgrade
    and a rollback.

    Exit code 0 if no broker would be removed, or those that would have no replicas; 1 if one has.
    Without an answer of a controller it waits.
    """
    from tidemark.cli.k8s import calls

    with calls.failures(release, namespace):
        work = calls.open_work(release, namespace, calls.Place(kubeconfig, context), timeout)
        calls.require_empty(work, brokers)
    say(f"{brokers} brokers hold every replica")


@app.command("replace-node")
def replace_node(
    release: ReleaseArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node that will not come back.")],
    *,
    node_is_dead: Annotated[
        bool,
        typer.Option(
            "--node-is-dead", help="The node is not ready, and you know that it does not run."
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Partitions at risk may lose records, or start empty."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be given up, and change nothing.")
    ] = False,
    yes: YesOption = False,
    timeout: TimeoutOption = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Give up the local volumes of a node that will not come back: their pods start on other nodes,
    with empty disks. Follow until every replica is in sync.

    Refused while the node is ready or may still run, another node is lost too, another broker is
    down, a replica elsewhere is not in sync, or no other has the records. It may be ended and run
    again at any time. The volumes are kept.
    """
    from tidemark.cli.k8s import calls

    with calls.failures(release, namespace):
        work = calls.open_work(release, namespace, calls.Place(kubeconfig, context), timeout)
        found, rows, refusal = calls.plan_replacement(
            work, node, confirmed=node_is_dead, accept_loss=accept_loss
        )
    _show_lost(rows)
    if refusal is not None:
        calls.report(work, found, refusal)
        raise CommandError(
            f"nothing is replaced: {refusal.message} ({refusal.reason})",
            hint=f"tidemark k8s status {release} -n {namespace}",
        )
    if dry_run:
        return
    if rows:
        confirm(f"Give up these volumes of node {node}", yes=yes)
    with calls.failures(release, namespace):
        work.replace(found, node)
    say("every pod is ready, every replica in sync")


@app.command("make-secrets")
def make_secrets(
    release: ReleaseArgument,
    *,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of its objects; default: RELEASE."),
    ] = None,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Addresses for clients.")
    ] = "",
    grpc_bootstrap: Annotated[
        str,
        typer.Option("--grpc-bootstrap", metavar="HOST:PORT", help="The same of a listener GRPC."),
    ] = "",
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="Super user; without it, no logins.")
    ] = "",
    certificates: Annotated[
        list[str] | None,
        typer.Option(
            "--certificate",
            metavar="COMPONENT=HOST,...",
            help="Certificate of a component, with its host names and addresses.",
        ),
    ] = None,
    given_certificate: Annotated[
        str, typer.Option("--given-certificate", metavar="SECRET", help="Secret with ca.crt.")
    ] = "",
    given_password: Annotated[
        str, typer.Option("--given-password", metavar="SECRET", help="Secret with password.")
    ] = "",
    authority: Annotated[
        str,
        typer.Option(
            "--authority", metavar="SECRET", help="Secret of cert-manager, with ca.crt for clients."
        ),
    ] = "",
    users: Annotated[
        list[str] | None,
        typer.Option("--secret-of", metavar="USER", help="Further user, with a Secret of its own."),
    ] = None,
    wait: WaitOption = 0,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Make the Secrets of a secure release that are missing: an authority, a certificate for each
    component, passwords, configurations of clients. Jobs of the chart run it.

    What is there is kept, but for certificates: one is replaced when two thirds of its time are
    over, or it is for other names. Services read it again without a restart.
    """
    from tidemark.cli.k8s import calls
    from tidemark.kubernetes.client_files import Addresses
    from tidemark.kubernetes.release_secrets import Given, Wanted

    wanted = Wanted(
        name or release,
        user,
        Addresses(bootstrap, grpc_bootstrap),
        calls.read_certificates(certificates or ()),
        Given(given_certificate, given_password, authority),
        users or (),
    )
    labels = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/instance": release}
    with calls.failures(release, namespace):
        store = calls.secret_store(namespace, calls.Place(kubeconfig, context), labels)
        if authority and wait:
            calls.wait_for_authority(store, authority, wait)
        lines = calls.make_secrets(store, wanted)
    for line in lines or ["every Secret is there"]:
        say(line)


@app.command()
def provision(
    release: ReleaseArgument,
    *,
    file: Annotated[
        Path, typer.Option("--file", metavar="PATH", help="Topics, users and ACLs, as YAML.")
    ],
    passwords: Annotated[
        Path | None,
        typer.Option(
            "--passwords", metavar="DIRECTORY", help="A file with the password for each user."
        ),
    ] = None,
    notes: Annotated[
        str, typer.Option("--notes", metavar="CONFIGMAP", help="Where made ACLs are noted.")
    ],
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Make the topics, users and ACLs that are missing, and alter those that differ. A Job of the
    chart runs it.

    Topics and users stay when they are no longer wanted; ACLs that an earlier run has made are
    removed. Partitions are only added. It waits for brokers, and may be run again at any time.
    """
    from tidemark.cli.k8s import calls, provisioning

    labels = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/instance": release}
    with calls.failures(release, namespace):
        api = calls.open_api(calls.Place(kubeconfig, context))
        lines = provisioning.provision(
            provisioning.Task(file, passwords, bootstrap_for(bootstrap), timeout),
            provisioning.notes_of(api, namespace, notes, labels),
        )
    for line in lines or ["topics, users and ACLs are as they are wanted"]:
        say(line)


def _show_lost(rows: list[dict[str, Any]]) -> None:
    if rows:
        print_rows(rows, ("pod", "claim", "volume"), OutputFormat.TABLE)
    else:
        say("no claim of this release has a volume there")
