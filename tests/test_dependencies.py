"""The versions that setup.cfg and pyproject.toml allow, against known_vulnerabilities.json: the work of pip-audit.

The list knows of the direct dependencies what was public when it was last looked through, in November 2026. To add an
advisory, add a line: the tests say which minimum version has to rise.
"""

import configparser
import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
KNOWN = json.loads((Path(__file__).parent / "known_vulnerabilities.json").read_text("utf-8"))


def requirements():
    """Every requirement of the package, of its extras and of its build, apart from those on itself."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    groups = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    lines = [line for group in groups for line in group.splitlines()]
    lines += tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return [requirement for requirement in found if requirement.name != "rag-jax"]


def lowest(requirement):
    """The lowest version that a requirement allows; None where it has no lower bound."""
    bounds = [Version(part.version) for part in requirement.specifier if part.operator in (">=", "==", "~=")]
    return max(bounds, default=None)


def unsafe(name, version):
    """The advisories, one of each line of the list, that a version of a package falls under."""
    return [
        known["advisories"][0]
        for known in KNOWN
        if canonicalize_name(known["package"]) == canonicalize_name(name)
        and SpecifierSet(known["affected"]).contains(version, prereleases=True)
    ]


def faults(requirement):
    """What is wrong with a requirement's lower bound."""
    if lowest(requirement) is None:
        return [f"{requirement}: no lower bound"]
    return [
        f"{requirement}: {lowest(requirement)} has {found}" for found in unsafe(requirement.name, lowest(requirement))
    ]


def test_every_dependency_has_a_lower_bound_without_a_known_vulnerability():
    assert len(requirements()) > 20
    assert not [fault for requirement in requirements() for fault in faults(requirement)]


def test_no_installed_version_has_a_known_vulnerability():
    installed = {}
    for requirement in requirements():
        try:
            installed[requirement.name] = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:  # an extra that is not installed, or another system's
            continue
    assert "transformers" in installed
    assert not {(name, version): found for name, version in installed.items() if (found := unsafe(name, version))}


def test_the_list_is_about_dependencies_and_each_entry_says_why():
    names = {canonicalize_name(requirement.name) for requirement in requirements()}
    for known in KNOWN:
        assert canonicalize_name(known["package"]) in names, f"{known['package']} is no dependency; remove the line"
        assert known["advisories"]
        assert known["what"]
        assert SpecifierSet(known["affected"])


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("transformers", "no lower bound"),
        ("transformers<6", "no lower bound"),
        ("transformers>=5.2", "5.2 has CVE-2026-4372"),
        ("Markdown_it.py>=2.1", "2.1 has CVE-2023-26302"),
        ("torch==2.12.1", "2.12.1 has CVE-2025-3000"),
        ("setuptools>=64", "64 has CVE-2022-40897"),
    ],
)
def test_an_offence_is_reported(line, fault):
    assert fault in faults(Requirement(line))[0]


def test_bounds_past_an_advisory_are_no_offence():
    assert not faults(Requirement("transformers>=5.10.1,<6"))
    assert not faults(Requirement("jax[tpu]>=0.10.2"))
