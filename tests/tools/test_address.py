"""A release has absolute links; the repository has no address of its own."""

import re
import shutil
import tomllib

import pytest

from tests.conftest import ROOT
from tools.address import LINK, absolute, write

ADDRESS = "https://example.org/owner/name"
FILES = ("README.md", "pyproject.toml", "CITATION.cff")


@pytest.fixture
def checkout(tmp_path):
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_links_and_pictures_of_all_kinds():
    text = "![a](p/a.svg) [b](docs/b.md#c) [![d](e.png)](f.md) [g](https://example.org/h) [i](#j) [k](mailto:l)"
    assert absolute(text, ADDRESS, "v1") == (
        f"![a]({ADDRESS}/raw/v1/p/a.svg) [b]({ADDRESS}/blob/v1/docs/b.md#c) "
        f"[![d]({ADDRESS}/raw/v1/e.png)]({ADDRESS}/blob/v1/f.md) [g](https://example.org/h) [i](#j) [k](mailto:l)"
    )


def test_every_relative_link_of_the_readme_leads_to_a_file():
    targets = [target.partition("#")[0] for _, _, target in LINK.findall((ROOT / "README.md").read_text())]
    assert len(targets) > 30
    for target in targets:
        assert (ROOT / target).exists(), target


def test_a_release_has_its_address_everywhere(checkout):
    write(checkout, ADDRESS + "/", "v0.1.0", "https://example.org/docs")
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    assert not LINK.search(readme)
    assert f"({ADDRESS}/raw/v0.1.0/docs/pictures/parse.svg)" in readme
    urls = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls["Homepage"] == ADDRESS
    assert urls["Documentation"] == "https://example.org/docs"
    assert urls["Changes"] == f"{ADDRESS}/blob/v0.1.0/CHANGELOG.md"
    assert f'repository-code: "{ADDRESS}"' in (checkout / "CITATION.cff").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="fresh checkout"):
        write(checkout, ADDRESS)


@pytest.mark.parametrize(
    "address", ["", "example.org/a/b", "https://example.org", "http://example.org/a", "https://a b/c"]
)
def test_what_is_no_address_is_refused(address, checkout):
    before = (checkout / "README.md").read_bytes()
    with pytest.raises(ValueError, match="https://HOST/OWNER/NAME"):
        write(checkout, address)
    assert (checkout / "README.md").read_bytes() == before


def test_the_repository_invents_no_address():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "urls" not in project
    for name in (*FILES, "CONTRIBUTING.md", "mkdocs.yml", "docs/install.md"):
        assert not re.search(r"git(hub|lab)\.com/\w+/trelliswork", (ROOT / name).read_text(encoding="utf-8")), name


def test_the_release_demands_the_address_and_publishes_without_a_secret():
    job = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "vars.PUBLIC_URL" in job
    assert job.index("tools.address") < job.index("python -m build")
    assert "id-token: write" in job
    assert "gh-action-pypi-publish" in job
    assert "secrets." not in job


def test_the_citation_has_the_version_of_the_next_release():
    from trelliswork import __version__

    (version,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert version == __version__.partition(".dev")[0]
