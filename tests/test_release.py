"""What a release says of itself: one version everywhere."""

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_setup_citation_and_changelog_name_the_same_version():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    version = setup["metadata"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest[1] == version
