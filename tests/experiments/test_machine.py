"""Description of the machine, and peak memory."""

import mmap
from pathlib import Path

import pytest

from experiments.machine import describe_machine, peak_memory, restart_peak_memory

MB = 2**20


def test_description_has_machine_and_packages():
    line = describe_machine()
    for part in (" cores", "Python 3.", "trelliswork ", "numpy ", "torch "):
        assert part in line


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")
def test_peak_memory_counts_from_its_restart():
    restart_peak_memory()
    before = peak_memory()
    with mmap.mmap(-1, 200 * MB) as large:  # from the system: numpy may have such a block left over
        for _ in range(200):
            large.write(b"x" * MB)
        with_it = peak_memory()
    assert with_it - before > 150 * MB
    assert peak_memory() > with_it - 10 * MB  # the peak stays; the system counts in batches
    restart_peak_memory()
    assert peak_memory() < with_it - 150 * MB


def test_peak_memory_without_proc(monkeypatch):
    monkeypatch.setattr("experiments.machine.Path", lambda _: Path("/nowhere/at/all"))
    restart_peak_memory()
    assert peak_memory() > 10 * MB
