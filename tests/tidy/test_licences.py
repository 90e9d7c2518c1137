"""Licences of what the services, the command line and the Spark jobs install: on this list, or
agreed to by name.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from tidy.proofs import ROOT

pytestmark = pytest.mark.feature("SE28")

ALLOWED = frozenset(
    (
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "Zlib",
    )
)
"""SPDX identifiers that an Apache-licensed project may depend on without more ado."""
AGREED = {"crc32c": {"LGPL-2.1-or-later"}}
"""Others, by package. crc32c is a library of its own, unchanged, and loaded at run time."""
SPOKEN = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
}
"""Words of older metadata; a licence in them that is not here has to be looked up."""
PROJECTS = ("lib", "services/broker", "services/controller", "spark-jobs")


def locked() -> Iterator[Requirement]:
    """Every package of the runtime, with the platforms that need it."""
    text = (ROOT / "requirements/runtime.txt").read_text()
    for line in re.findall(r"^[A-Za-z0-9][^\n\\]*==[^\n\\]*", text, re.MULTILINE):
        yield Requirement(line.strip())


def direct() -> Iterator[Requirement]:
    """What the projects name, with the extras of the library."""
    for project in PROJECTS:
        found = tomllib.loads((ROOT / project / "pyproject.toml").read_text())["project"]
        named = list(found["dependencies"])
        named += [one for extra in found.get("optional-dependencies", {}).values() for one in extra]
        yield from (Requirement(one) for one in named if not one.startswith("tidemark"))


def installed() -> dict[str, metadata.PackageMetadata]:
    wanted = [*locked(), *direct()]
    here = {one.name for one in wanted if one.marker is None or one.marker.evaluate()}
    return {name: metadata.metadata(name) for name in sorted(here)}


def licences(package: metadata.PackageMetadata) -> set[str]:
    """SPDX identifiers: of the expression, else of the classifiers, else of the free text."""
    for expression in package.get_all("License-Expression", []):
        return set(re.split(r" (?:AND|OR|WITH) ", expression.replace("(", "").replace(")", "")))
    classifiers = package.get_all("Classifier", [])
    words = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    text = "".join(package.get_all("License", [])).strip()
    if text in ALLOWED or text in SPOKEN or not words or "later" in text:
        words = [text]
    return {SPOKEN.get(word, word) for word in words}


def test_every_licence_is_allowed_or_agreed_to() -> None:
    found = {name: licences(package) for name, package in installed().items()}
    unknown = {
        name: each
        for name, each in found.items()
        if not each or each - ALLOWED - AGREED.get(name, set())
    }
    assert unknown == {}


def test_what_was_agreed_to_is_still_used() -> None:
    found = installed()
    assert {name: licences(found[name]) for name in AGREED} == AGREED
