"""``python -m experiments all`` with experiments that succeed, fail, lack data or are interrupted."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from experiments import everything as reproduce_all
from experiments import registry
from experiments.__main__ import app
from experiments.registry import Experiment, find
from experiments.tables import Figure, Table

HERE = "tests.experiments.test_everything"
KEYS = ["reproduce", "row", "paper", "ours", "unit", "seconds", "note"]
NOWHERE = {"TRELLISWORK_DATA": ""}
seen: list[dict] = []


def works(*, size=10, seed=0, say):
    seen.append({"size": size, "seed": seed})
    say("working")
    return Table("Works", ["size"], rows=[[size]], figures=[Figure("size", 8.0, float(size), "things", 0.5, "luck")])


def fails(*, say):
    raise ArithmeticError("no such\nluck")


def is_interrupted(*, say):
    raise KeyboardInterrupt


def reads(folder, *, say):
    return Table("Reads", ["words"], rows=[[len((folder / "text.txt").read_text().split())]])


@pytest.fixture
def experiments(monkeypatch):
    """Fake experiments under names of real ones."""
    seen.clear()
    fakes = (
        Experiment("mrf-exact", 0, "works", f"{HERE}:works", full={"size": 10, "seed": 0}, small={"size": 2}),
        Experiment("mrf-ptb", 0, "fails", f"{HERE}:fails"),
        Experiment("nettalk", 2, "reads", f"{HERE}:reads", "nettalk", ("text.txt",)),
        Experiment("bp-cost", 3, "works too", f"{HERE}:works", full={"size": 9, "seed": 0}, small={"size": 1}),
    )
    monkeypatch.setattr(registry, "EXPERIMENTS", fakes)
    monkeypatch.setattr(reproduce_all, "EXPERIMENTS", fakes)
    monkeypatch.setattr("experiments.record.EXPERIMENTS", fakes)
    return fakes


def run(*arguments, **options):
    return CliRunner().invoke(app, ["all", *map(str, arguments)], env=NOWHERE, **options)


def test_all_continues_after_a_failure_and_without_data(experiments, tmp_path):
    done = run("--quick", "--json", "--out", tmp_path, "--seed", 4)
    assert done.exit_code == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert [(row["reproduce"], row["ours"], row["note"]) for row in rows] == [
        ("mrf-exact", 2.0, "quick: luck"),
        ("bp-cost", 1.0, "quick: luck"),
    ]
    assert seen == [{"size": 2, "seed": 4}, {"size": 1, "seed": 4}]
    assert "[1 of 4] mrf-exact: paper 0, works" in done.stderr
    assert "mrf-ptb: failed: ArithmeticError: no such luck" in done.stderr
    assert "nettalk: skipped, its data is missing: nettalk/text.txt (pass --data" in done.stderr
    assert done.stderr.rstrip().endswith("not finished: mrf-ptb, nettalk")
    assert [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()] == rows
    assert "| failed: ArithmeticError: no such luck |" in (tmp_path / "paper-0.md").read_text()
    assert "| size | 8.0000 | 2.0000 | -6.0000 | things |" in (tmp_path / "paper-0.md").read_text()
    assert (tmp_path / "paper-2.md").exists()
    assert (tmp_path / "paper-3.md").exists()


def test_data_is_found_and_tables_are_printed(experiments, tmp_path):
    (tmp_path / "nettalk").mkdir()
    (tmp_path / "nettalk" / "text.txt").write_text("a b c")
    done = run("--data", tmp_path, "--skip", "mrf-ptb", "--quiet")
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "| 3     |" in done.stdout
    assert done.stdout.count("Works\n") == 2
    assert seen == [{"size": 10, "seed": 0}, {"size": 9, "seed": 0}]


def test_only_some(experiments):
    done = run("--only", "bp-cost", "--only", "mrf-exact", "--skip", "mrf-exact")
    assert done.exit_code == 0
    assert seen == [{"size": 9, "seed": 0}]
    assert "[1 of 1] bp-cost: paper 3, works too, about 1 minutes" in done.stderr
    assert "    working" in done.stderr
    assert "1 of 1 experiments finished" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--only", "none"], ["--skip", "none"], ["--only", "nettalk", "--skip", "nettalk"]]
)
def test_wrong_names(experiments, arguments):
    assert run(*arguments).exit_code == 2
    assert not seen


def test_ctrl_c_keeps_finished_results(experiments, monkeypatch, tmp_path):
    changed = (experiments[0], replace(experiments[1], function=f"{HERE}:is_interrupted"), *experiments[2:])
    for module in ("everything", "registry", "record"):
        monkeypatch.setattr(f"experiments.{module}.EXPERIMENTS", changed)
    done = run("--out", tmp_path)
    assert done.exit_code == 130
    assert "interrupted in mrf-ptb: 1 experiments are finished; they are in" in done.stderr
    assert "--resume runs the rest" in done.stderr
    assert "| mrf-exact | size |" in (tmp_path / "paper-0.md").read_text()
    assert len(seen) == 1


def test_resume_runs_the_rest(experiments, tmp_path):
    assert run("--only", "mrf-exact", "--out", tmp_path).exit_code == 0
    page = (tmp_path / "paper-0.md").read_text()
    seen.clear()
    done = run("--skip", "mrf-ptb", "--skip", "nettalk", "--out", tmp_path, "--resume")
    assert done.exit_code == 0
    assert seen == [{"size": 9, "seed": 0}]  # bp-cost alone
    assert "[1 of 2] mrf-exact: finished before, " in done.stderr
    assert "2 of 2 experiments finished" in done.stderr
    assert (tmp_path / "paper-0.md").read_text() == page


def test_resume_repeats_other_settings_and_failures(experiments, tmp_path):
    assert run("--out", tmp_path, "--quick").exit_code == 1
    for again in (["--seed", 4, "--quick"], ["--seed", 4]):  # another seed, then no longer quick
        seen.clear()
        done = run("--out", tmp_path, "--resume", *again)
        assert done.exit_code == 1
        assert len(seen) == 2
        assert "mrf-ptb: failed: ArithmeticError" in done.stderr
    seen.clear()
    assert run("--out", tmp_path, "--resume", "--seed", 4).exit_code == 1
    assert not seen


def test_resume_needs_a_folder(experiments):
    refused = run("--resume")
    assert refused.exit_code == 2
    assert "--resume needs the folder" in refused.stderr
    assert not seen


def test_unusable_folder_is_an_error_before_anything_runs(experiments, tmp_path):
    (tmp_path / "file").write_text("")
    assert run("--out", tmp_path / "file").exit_code == 1
    assert run("--out", tmp_path / "full").exit_code == 1  # two of them fail
    seen.clear()
    refused = run("--out", tmp_path / "full", "--quick")
    assert refused.exit_code == 1
    assert "holds the full figures of mrf-exact" in refused.stderr
    assert not seen


def test_one_experiment_writes_the_same_folder(tmp_path):
    """A real experiment, by its own command, then by ``all``."""
    arguments = ["mrf-exact", "--quick", "--words", "2", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "figures.jsonl").read_text() == done.stdout
    assert "n_words=2" in (tmp_path / "paper-0.md").read_text()
    done = run("--only", "mrf-exact", "--quick", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "paper-0.md").read_text()
    assert "n_words=4" in page
    assert "n_words=2" not in page
    assert "(quick)" in done.stdout


def test_missing_data_is_named():
    done = CliRunner().invoke(app, ["nettalk"], env=NOWHERE | {"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "nettalk needs nettalk/nettalk.data: pass their folder with --data" in done.stderr
    assert find("nettalk").folder == "nettalk"


def test_figures_are_recorded(experiments, tmp_path):
    path = tmp_path / "records.jsonl"
    done = run("--only", "mrf-exact", "--only", "bp-cost", "--quiet", "--record", path)
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["experiment"], line.get("ours")) for line in lines] == [
        ("mrf-exact", None),
        ("mrf-exact", 10.0),
        ("bp-cost", None),
        ("bp-cost", 9.0),
    ]
    assert run("--quick", "--record", path).exit_code == 2
