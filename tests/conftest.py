"""Fixtures and settings for all tests: the folder of real data, and the hypothesis profile."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import browser, open_page  # noqa: F401, fixtures for all tests of pages

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a background job of a shell; child processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]

# Deadlines would depend on the machine. Fixed examples make failures reproducible; HYPOTHESIS_PROFILE=nightly draws new
# ones, and prints how to repeat one that fails.
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("trelliswork", derandomize=True, max_examples=30, **QUIET)
settings.register_profile("nightly", derandomize=False, max_examples=100, print_blob=True, **QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "trelliswork"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data: TRELLISWORK_DATA, or ``../shared/data`` beside the repository."""
    folder = Path(os.environ.get("TRELLISWORK_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder (set TRELLISWORK_DATA)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def silent_compilation() -> Iterator[None]:
    """Commands in this process do not say that they compile, which depends on the tests that ran before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trelliswork.cli.running.Notice", lambda purpose: lambda kernel: None)
        yield
