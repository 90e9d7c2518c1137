"""Write helm/tidemark/README.md: each value of the chart with its default and its meaning.

A value's meaning is the comment ``# -- ...`` above it in ``values.yaml``.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

CHART: Final = Path(__file__).parents[1] / "helm/tidemark"
_MARK: Final = "# -- "
_HEAD: Final = """\
# Chart tidemark

Brokers, controllers, txn-coordinators, share-coordinators and ZooKeeper on Kubernetes 1.25 or
newer, with local disks. No value is required: three brokers, three replicas, two of them in sync.

    make images         # then load build/images/*.tar on the nodes, or push them to a registry
    helm install tidemark helm/tidemark -n tidemark --create-namespace
    helm test tidemark -n tidemark

The chart makes no PersistentVolumes and deletes no claims. `broker.storage.storageClassName` names
a class of local volumes, with `volumeBindingMode: WaitForFirstConsumer` and
`reclaimPolicy: Retain`. Unknown values are refused. Clients log in over TLS, and ACLs decide what
they may do; network policies admit only the namespaces that are named.

## Values

| value | default | meaning |
| --- | --- | --- |
"""


class ReadmeError(Exception):
    """A value has no comment. The message names it."""


def readme(chart: Path = CHART) -> str:
    """Return the README of the chart. Raises ReadmeError."""
    lines = (chart / "values.yaml").read_text().splitlines()
    values = yaml.safe_load("\n".join(lines))
    meanings = _meanings(lines)
    rows = []
    for path, value in _leaves(values, (), meanings):
        if path not in meanings:
            raise ReadmeError(f"values.yaml: {'.'.join(path)} has no comment '{_MARK}...' above it")
        default = json.dumps(value)
        rows.append(f"| `{'.'.join(path)}` | `{default}` | {meanings[path]} |\n")
    return _HEAD + "".join(rows)


def _meanings(lines: list[str]) -> dict[tuple[str, ...], str]:
    """Comments by the path of the key in the next line."""
    found: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    comment = ""
    for line in lines:
        text = line.strip()
        if text.startswith(_MARK):
            comment = text.removeprefix(_MARK)
        elif text and not text.startswith("#"):
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], text.partition(":")[0]]
            if comment:
                found[tuple(path)] = comment
            comment = ""
    return found


def _leaves(
    value: Any, path: tuple[str, ...], ends: dict[tuple[str, ...], str]
) -> list[tuple[tuple[str, ...], Any]]:
    """Values with their paths. A value with a comment is one, even if it has parts."""
    if path in ends or not isinstance(value, dict):
        return [(path, value)]
    return [leaf for key, part in value.items() for leaf in _leaves(part, (*path, key), ends)]


if __name__ == "__main__":
    try:
        (CHART / "README.md").write_text(readme())
    except ReadmeError as error:
        sys.exit(str(error))
