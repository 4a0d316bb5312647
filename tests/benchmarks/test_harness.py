"""The benchmark harness with contenders that work and contenders that misbehave."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import harness, load
from benchmarks.harness import Benchmark, Case, Contender, Reference, Row
from benchmarks.rows import format_table, round_significant, without_absent
from benchmarks.workers import ROOT, SkippedError, find_python, thread_variables

pytestmark = pytest.mark.programs


HERE = Path(__file__).resolve().parent
FIELDS = ["bench", "case", "peer", "threads", "seconds", "peer_seconds", "ratio", "peak_mb", "peer_peak_mb", "extra"]


class NoLoad:
    """Report no load, so that every sample is taken once."""

    def __init__(self, pid: int, n_cores: int) -> None:
        pass

    def is_high(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLISWORK_PYTHON", sys.executable)
    monkeypatch.setenv("TRELLISWORK_BENCH_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr(harness, "ForeignLoad", NoLoad)


def contender(name: str, **keywords: Any) -> Contender:
    return Contender(name, f"fake_contenders:{name}", **keywords)


def before_rounding(value: float) -> tuple[float, float]:
    """Return the limits of a number before it was rounded to four digits."""
    half = 10.0 ** (math.floor(math.log10(value)) - 3) / 2
    return value - half, value + half


def benchmark(*peers: str, ours: str = "sums", cases: int = 1, pids: Path | None = None, **case: Any) -> Benchmark:
    params = {"n": 100} | ({"pids": str(pids)} if pids else {})
    return Benchmark(
        name="fake",
        ours=contender(ours, environment=""),
        peers=tuple(contender(peer) for peer in peers),
        cases=tuple(Case(f"n={i}", params, check=params, **case) for i in range(cases)),
    )


def run(bench: Benchmark, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    status = harness.main(bench, ["--json", "--repeats", "1", "--threads", "1", *arguments])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # a zombie would still be there
    except ProcessLookupError:
        return True
    return False


def test_rows_of_a_working_peer(capsys):
    status, rows = run(benchmark("sleeps", cases=2), capsys, "--repeats", "3")
    assert status == 0
    assert [(row["case"], row["peer"]) for row in rows] == [("n=0", "sleeps"), ("n=1", "sleeps")]
    for row in rows:
        assert list(row) == FIELDS
        assert row["bench"] == "fake"
        assert row["threads"] == 1
        assert row["peer_seconds"] >= 0.01 > row["seconds"] > 0
        (least, most), (low, high) = before_rounding(row["seconds"]), before_rounding(row["peer_seconds"])
        assert round_significant(low / most) <= row["ratio"] <= round_significant(high / least)
        assert row["extra"] == {}


def test_several_numbers_of_threads(capsys, tmp_path):
    """Both are measured in the same rounds; a peer that has one thread is measured once, and so for variants."""
    pids = tmp_path / "pids"
    params = {"n": 100, "pids": str(pids)}
    case = Case("a", params, variants=(Case("b", params),))
    peers = contender("sleeps", one_thread=True), contender("sums")
    bench = Benchmark("fake", contender("sums", environment=""), peers, (case,))
    status, rows = run(bench, capsys, "--threads", "1,2,1")
    assert status == 0
    assert [(row["case"], row["threads"]) for row in rows[::2]] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert [row["peer"] for row in rows] == ["sleeps", "sums"] * 4
    assert len({row["peer_seconds"] for row in rows[::2]}) == 1
    assert len(pids.read_text().split()) == 4 + 1 + 2  # ours, and the peers with one thread and with two
    assert harness.main(bench, ["--repeats", "1", "--threads", "1,2", "--peers", ""]) == 0
    table = capsys.readouterr().out
    assert "1 and 2 threads, best of 1" in table
    assert [line.split()[-1] for line in table.splitlines()[4:]] == ["1", "2", "1", "2"]


def test_misbehaving_peers_do_not_stop_the_others(capsys, tmp_path):
    pids = tmp_path / "pids"
    bench = benchmark("raises", "misses", "lacks", "eats", "hangs", "dies", "sleeps", pids=pids)
    status, rows = run(bench, capsys, "--timeout", "4", "--max-memory-gb", "0.25")
    assert status == 0
    extra = {row["peer"]: row["extra"] for row in rows}
    assert list(extra) == [peer.name for peer in bench.peers]
    assert extra["raises"] == {"failed": "ValueError: no such luck"}
    assert extra["misses"] == {"skipped": "ModuleNotFoundError: No module named 'library_that_nobody_has'"}
    assert extra["lacks"] == {"skipped": "no second-order chains"}
    assert extra["eats"] == {"failed": "took more than 0.25 GB of memory"}
    assert extra["hangs"] == {"failed": "no answer within 4 s"}
    assert extra["dies"] == {"failed": "exited with status 3: the last words"}
    assert extra["sleeps"] == {}
    for row in rows:
        assert row["seconds"] > 0
        assert (row["peer_seconds"] is None) == (row["ratio"] is None) == (row["peer"] != "sleeps")
    workers = {int(line) for line in pids.read_text().split()}
    assert len(workers) == 7
    assert all(is_gone(pid) for pid in workers)


def test_peer_with_other_results_is_not_timed(capsys):
    status, rows = run(benchmark("errs", "sleeps"), capsys)
    assert status == 1
    assert rows[0]["peer_seconds"] is None
    assert rows[0]["extra"] == {"failed": "MISMATCH with ours on the tiny case: digest.total is 5050, ours is 4950"}
    assert rows[1]["extra"] == {}


@pytest.mark.parametrize(("ours", "kind"), [("raises", "failed"), ("misses", "skipped")])
def test_peers_are_measured_without_ours(capsys, ours, kind):
    status, (row,) = run(benchmark("sleeps", ours=ours), capsys)
    assert status == 1
    assert row["seconds"] is None
    assert row["ratio"] is None
    assert row["peer_seconds"] > 0
    assert row["extra"][kind].startswith("ours: ")


def test_missing_environment_is_reported(capsys, monkeypatch):
    monkeypatch.setenv("TRELLISWORK_BENCH_PYTHON", str(HERE / "no-python"))
    _, (row,) = run(benchmark("sums"), capsys)
    assert "make setup-bench" in row["extra"]["skipped"]
    assert "TRELLISWORK_BENCH_PYTHON" in row["extra"]["skipped"]


def test_interpreters_are_found_by_environment(monkeypatch):
    monkeypatch.delenv("TRELLISWORK_PYTHON")
    assert find_python("").exists()
    assert find_python("bench") == Path(sys.executable)
    with pytest.raises(SkippedError, match="TRELLISWORK_BENCH_OLD_PYTHON"):
        find_python("bench-old")


def test_threads_are_set_for_every_library():
    variables = thread_variables(3)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "TRELLISWORK_THREADS"):
        assert variables[name] == "3"


@pytest.mark.parametrize(("disturbed", "extra"), [([True, False, False], {}), ([True] * 6, {"disturbed": True})])
def test_disturbed_samples_are_repeated(capsys, monkeypatch, disturbed, extra):
    answers = iter(disturbed)
    monkeypatch.setattr(harness, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(NoLoad, "is_high", lambda self: next(answers))
    _, (row,) = run(benchmark("sums"), capsys)
    assert row["ratio"] > 0
    assert row["extra"] == extra
    assert next(answers, None) is None


@pytest.mark.parametrize(("others", "high"), [(0.0, False), (0.03, False), (5.0, True)])
def test_load_excludes_the_worker(monkeypatch, others, high):
    busy, own = iter([100.0, 101.0 + others]), iter([10.0, 11.0])
    monkeypatch.setattr(load, "busy_seconds", lambda cores: next(busy))
    monkeypatch.setattr(load, "process_seconds", lambda pid: next(own))
    assert load.ForeignLoad(1, 2).is_high() == high


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc")
def test_processor_times_are_read():
    begin = load.process_seconds(os.getpid())
    while load.process_seconds(os.getpid()) < begin + 0.05:
        pass
    assert load.busy_seconds(sorted(os.sched_getaffinity(0))) > 0.05


def test_reference_has_a_row_and_adds_to_the_case(capsys):
    exact: dict[str, float] = {}  # seconds before rounding

    def describe(seconds):
        exact["alone"] = seconds
        return {"rate": 1 / seconds}

    def relate(ours, seconds):
        exact["ours"], exact["same"] = ours, seconds
        return {"part": ours / seconds}

    reference = Reference(contender("sleeps"), {"n": 1}, describe, relate)
    _, (own, row) = run(benchmark("sums", reference=reference), capsys)
    assert own["case"] == "sleeps"
    assert own["peer"] is None
    ours, same = exact["ours"], exact["same"]
    assert exact["alone"] == same
    assert [own["seconds"], row["seconds"]] == round_significant([same, ours])
    assert own["extra"] == round_significant({"rate": 1 / same})
    assert row["extra"] == round_significant({"part": ours / same})


def test_row_of_ours_without_peers(capsys):
    _, (row,) = run(benchmark("sleeps"), capsys, "--peers", "")
    assert row["peer"] is None
    assert row["ratio"] is None
    assert row["seconds"] > 0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")
def test_peak_memory_is_that_of_the_call(capsys):
    bench = Benchmark("fake", contender("sums", environment=""), (contender("holds"),), (Case("n", {"n": 100}),))
    _, (row,) = run(bench, capsys)
    assert row["peak_mb"] < 8
    assert 60 < row["peer_peak_mb"] < 80


def test_cases_and_peers_are_chosen(capsys):
    _, rows = run(benchmark("sums", "sleeps", cases=3), capsys, "--cases", "=2,=0", "--peers", "sleeps")
    assert [(row["case"], row["peer"]) for row in rows] == [("n=0", "sleeps"), ("n=2", "sleeps")]
    assert harness.main(benchmark("sums"), ["--list"]) == 0
    assert capsys.readouterr().out == "case n=0\npeer sums\n"


@pytest.mark.parametrize(
    "arguments", [["--cases", "none such"], ["--peers", "nobody"], ["--repeats", "0"], ["--threads", "1,x"]]
)
def test_wrong_arguments_are_errors(arguments):
    with pytest.raises(SystemExit, match="2"):
        harness.main(benchmark("sums"), arguments)


def test_table_has_the_ratio_first(capsys):
    assert harness.main(benchmark("sums", "misses"), ["--repeats", "1"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[2].split()[:3] == ["ratio", "case", "peer"]
    assert lines[4].split()[1:3] == ["n=0", "sums"]
    assert lines[5:7] == ["", "absent: misses (ModuleNotFoundError: No module named 'library_that_nobody_has')"]
    assert "misses SKIPPED" in err


def test_absent_peers_are_listed_once_and_ours_keeps_a_row(capsys):
    bench = benchmark("misses", "lacks", cases=2)
    assert harness.main(bench, ["--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[4:6]] == [["-", "n=0", "-"], ["-", "n=1", "-"]]
    assert [line.split()[1] for line in lines[7:]] == ["misses", "lacks"]
    failed = [Row("fake", "a", "gone", 1, None, extra={"skipped": "ours: no data; not installed"})]
    assert without_absent(failed) == (failed, {})  # ours was skipped


def test_quick_times_each_tiny_problem_once(capsys):
    cases = (
        Case("a", {"n": 10**9}, check={"n": 10}),
        Case("b", {"n": 10**9}, check={"n": 10}),
        Case("c", {"n": 10**9}, check={"n": 20}),
        Case("d", {"n": 10**9}),
    )
    bench = Benchmark("fake", contender("sums", environment=""), (contender("errs"),), cases)
    status, rows = run(bench, capsys, "--quick")
    assert [row["case"] for row in rows] == ["a", "c"]
    assert status == 1  # the results are compared
    assert "MISMATCH with ours on the case" in rows[0]["extra"]["failed"]
    assert harness.main(Benchmark("fake", bench.ours, (), cases[3:]), ["--quick"]) == harness.NOTHING


@pytest.mark.parametrize("arguments", [["--cases", "none such"], ["--peers", "nobody"]])
def test_any_allows_nothing_to_do(arguments, capsys):
    assert harness.main(benchmark("sums"), ["--any", *arguments]) == harness.NOTHING
    status, rows = run(benchmark("sums", "sleeps"), capsys, "--any", "--peers", "sleeps,nobody")
    assert (status, [row["peer"] for row in rows]) == (0, ["sleeps"])


def test_table_is_aligned():
    row = Row("chain", "S=16", "slow", 2, 0.001, 0.0125, 1.0, 25.0)
    failed = Row("chain", "S=256", None, 2, 123.4, extra={"failed": "why"})
    assert format_table([row, failed]).splitlines() == [
        "ratio  case   peer  ours     peer's   MB   peer's MB",
        "-----  -----  ----  -------  -------  ---  ---------  -----------",
        "12.50  S=16   slow  1.00 ms  12.5 ms  1.0       25.0",
        "    -  S=256  -       123 s        -    -          -  failed: why",
    ]


def test_digests_are_compared_item_by_item():
    ours = {"log_z": [1.0, float("-inf")], "name": "a", "count": 3}
    close = {"rtol": 1e-3, "atol": 0.0}
    assert harness.differ(ours, {"log_z": [1.0005, float("-inf")], "name": "a", "count": 3}, **close) is None
    for change in (
        {"log_z": [1.1, float("-inf")]},
        {"log_z": [float("nan"), float("-inf")]},
        {"name": "b"},
        {"more": 1},
    ):
        assert harness.differ(ours, ours | change, **close) is not None
    assert harness.differ([1.0], [1.0, 2.0], **close) is not None


def test_floats_are_rounded_to_four_digits():
    assert round_significant({"a": [0.123456, 123456.0], "b": 12345, "c": "x"}) == {
        "a": [0.1235, 123500.0],
        "b": 12345,
        "c": "x",
    }


def test_ctrl_c_ends_the_workers_and_prints_results_so_far(tmp_path):
    pids = tmp_path / "pids"
    program = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(HERE)!r}]
from pathlib import Path
from benchmarks import harness
from test_harness import NoLoad, benchmark
harness.ForeignLoad = NoLoad
sys.exit(harness.main(benchmark("sleeps", pids=Path({str(pids)!r})), ["--json", "--repeats", "100000"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "round 3 " in line:
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=10)
    assert process.returncode == 130
    (row,) = (json.loads(line) for line in out.splitlines())
    assert row["ratio"] > 0
    assert row["extra"]["interrupted"] is True
    assert all(is_gone(int(pid)) for pid in pids.read_text().split())


@pytest.mark.parametrize("command", [["-m", "benchmarks.chain"], [str(ROOT / "benchmarks" / "chain.py")]])
def test_chain_benchmark_starts_as_module_and_as_script(command, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT) if "-m" in command else "")
    result = subprocess.run(
        [sys.executable, *command, "--list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "case viterbi S=256" in result.stdout
    assert "peer dynamax" in result.stdout


def test_a_record_is_updated(tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    bench = benchmark("sleeps", "raises", stop="10 steps")
    run(bench, capsys, "--record", str(path))
    run(bench, capsys, "--record", str(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["peer"] for line in lines] == ["sleeps", "raises"]  # the second run has replaced the first
    assert lines[0]["conditions"] == lines[0]["peer_conditions"] == "1 thread"
    assert lines[0]["stop"] == "10 steps"
    assert lines[0]["ratio"] > 0
    assert "failed" in lines[1]["extra"]
    assert {"command", "machine", "date"} <= lines[0].keys()
    with pytest.raises(SystemExit):
        harness.main(bench, ["--quick", "--record", str(path)])
