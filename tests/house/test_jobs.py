"""Continuous integration runs a stranger's commands first, and every extra, every mark of a test and the site."""

import re
import tomllib

from tests.conftest import ROOT
from tests.house.stranger import lines as strangers_lines

JOBS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_a_stranger_comes_first():
    """The README's lines are run in an environment that was not prepared, before anything is installed."""
    assert {"make demo", "make test"} <= {line.split("  #")[0].strip() for line in strangers_lines()}
    steps = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert next(line for line in steps if "python" in line or "make" in line) == "python3 tests/house/stranger.py"
    job = JOBS["ci.yml"].split("  checks:")[1].split("\n  platforms:")[0]
    assert "bash .ci/run" in job
    assert "pip install" not in job


def installed_by_jobs() -> set[str]:
    """Return the extras that some job installs, itself or by make, with those that they include."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = " ".join([*JOBS.values(), (ROOT / ".ci" / "run").read_text()])
    if "make docs" in called:
        called += makefile.split(".venv/.docs:")[1].split("\n\n")[0]
    groups = re.findall(r"-e '?\.\[([\w,]+)\]", called)
    extras, new = set(), {name for group in groups for name in group.split(",")}
    while new:
        extras |= new
        inner = " ".join(one for name in new for one in PROJECT["project"]["optional-dependencies"][name])
        new = {n for group in re.findall(r"trelliswork\[([\w,]+)\]", inner) for n in group.split(",")} - extras
    return extras


def test_every_extra_and_every_mark_is_run_by_a_job():
    assert installed_by_jobs() == set(PROJECT["project"]["optional-dependencies"])
    marks = {line.split(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    assert marks == {"slow", "programs"}
    assert "pytest -n auto --dist loadfile -rs -m slow" in JOBS["nightly.yml"]
    assert 'pytest -m "not slow"' in JOBS["ci.yml"]  # programs, too
    assert "make test-programs" in (ROOT / ".ci" / "run").read_text()
    assert "make docs" in JOBS["ci.yml"]
    assert "HYPOTHESIS_PROFILE: nightly" in JOBS["nightly.yml"]
    assert 'TRELLISWORK_CHECKED: "1"' in JOBS["ci.yml"]
