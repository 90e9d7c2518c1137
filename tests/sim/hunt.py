"""Which seeds a hunt for a mutation runs, and in which order.

A mutation must be found by one of the first seeds of its world. ``found_at.txt`` names the seed
that found it last: that one runs first, since most hunts end with it. If it no longer finds the
mutation (a change of the product or of the world gives it another run), the other seeds follow in
order, so that the file makes a hunt shorter and never decides it.

``python -m sim.hunt RESULTS.xml`` writes the file again from the JUnit results of the tests, which
record the seed of each finding::

    pytest tests/sim -k test_the_simulator_finds --junitxml=RESULTS.xml
"""

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

SEEDS_UNTIL_FOUND: Final = 200
FINDING: Final = "found by"
"""The property of a test's result; its value begins with `seed N:`."""
FOUND_AT: Final = Path(__file__).with_name("found_at.txt")
_SHOWN_FROM: Final = 2
"""Only seeds from this one on are kept: the first seed runs first anyway."""


def seeds_to_try(world: str, name: str, *, found_at: Path = FOUND_AT) -> Iterator[int]:
    """Every seed of a hunt once, the one that found the mutation last before the others."""
    first = last_findings(found_at).get((world, name), 1)
    seeds = range(1, SEEDS_UNTIL_FOUND + 1)
    if first in seeds:
        yield first
    yield from (seed for seed in seeds if seed != first)


def last_findings(path: Path) -> Mapping[tuple[str, str], int]:
    """The seed of each finding by world and mutation: lines of `world seed mutation`."""
    findings: dict[tuple[str, str], int] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            world, seed, name = line.split(maxsplit=2)
            findings[world, name] = int(seed)
    return findings


def findings_of(results: Path) -> Iterator[tuple[str, str, int]]:
    """World, mutation and seed of each finding in JUnit results."""
    for case in ET.parse(results).iter("testcase"):
        for found in case.iter("property"):
            if found.get("name") == FINDING:
                world = (case.get("classname") or "").rpartition(".test_")[2]
                mutation = (case.get("name") or "").partition("[")[2].removesuffix("]")
                seed = int((found.get("value") or "").removeprefix("seed ").partition(":")[0])
                yield world, mutation, seed


def write(results: Path, path: Path = FOUND_AT) -> None:
    """Take the seeds of the results over; mutations that they do not name keep theirs."""
    findings = dict(last_findings(path))
    findings.update({(world, name): seed for world, name, seed in findings_of(results)})
    kept = [line for line in path.read_text().splitlines() if line.startswith("#")]
    rows = [
        f"{world} {seed} {name}"
        for (world, name), seed in sorted(findings.items())
        if seed >= _SHOWN_FROM
    ]
    path.write_text("\n".join([*kept, *rows]) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
