"""Write the public address of the repository where a release needs it: README, ``[project.urls]``, citation.

    python -m tools.address https://example.org/owner/name [--ref v0.1.0] [--docs https://example.org/docs]

The repository itself has no address in any file. The release job runs this with the repository variable ``PUBLIC_URL``
on its own checkout before it builds, since PyPI shows the README away from its folder: relative links become links
into the repository at ``--ref``, and pictures links to their bytes.
"""

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, address: str, ref: str) -> str:
    """Return Markdown whose relative links lead to the repository."""

    def link(found: re.Match[str]) -> str:
        picture, shown, target = found.groups()
        shown = LINK.sub(link, shown)
        return f"{picture}[{shown}]({address}/{'raw' if picture else 'blob'}/{ref}/{target})"

    return LINK.sub(link, text)


def with_urls(pyproject: str, address: str, ref: str, docs: str) -> str:
    """Return the project file with a table of links."""
    if "[project.urls]" in pyproject:
        raise ValueError("pyproject.toml has [project.urls] already: run this on a fresh checkout.")
    urls = {
        "Homepage": address,
        "Documentation": docs or f"{address}/blob/{ref}/docs/index.md",
        "Changes": f"{address}/blob/{ref}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    table = "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return pyproject.replace("[project.optional-dependencies]", f"{table}\n[project.optional-dependencies]", 1)


def write(root: Path, address: str, ref: str = "HEAD", docs: str = "") -> None:
    """Rewrite README.md, pyproject.toml and CITATION.cff of a checkout."""
    address = address.rstrip("/")
    if not re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)+", address):
        raise ValueError(f"the address of the repository must look like https://HOST/OWNER/NAME, got {address!r}.")
    for name, change in (
        ("README.md", lambda text: absolute(text, address, ref)),
        ("pyproject.toml", lambda text: with_urls(text, address, ref, docs)),
        ("CITATION.cff", lambda text: f'{text.rstrip()}\nrepository-code: "{address}"\n'),
    ):
        path = root / name
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.address", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address")
    parser.add_argument("--ref", default="HEAD", help="tag or branch that links lead to")
    parser.add_argument("--docs", default="", help="address of the documentation site, if it is hosted")
    options = parser.parse_args()
    write(ROOT, options.address, options.ref, options.docs)
