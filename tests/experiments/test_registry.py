"""The registry of experiments: settings, data, quick runs; and the experiments of paper 1."""

import importlib
import inspect
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments import chain_tagging
from experiments.__main__ import app
from experiments.commands import COMMANDS
from experiments.registry import EXPERIMENTS, PAPERS, describe, find
from experiments.tables import Figure, Table
from trelliswork.errors import DataError, ValueRangeError

NAMES = [experiment.name for experiment in EXPERIMENTS]


def function_of(experiment):
    module, _, name = experiment.function.partition(":")
    return getattr(importlib.import_module(module), name)


def test_experiments_and_commands_are_the_same():
    assert sorted(command.name for command in app.registered_commands) == sorted([*NAMES, "all"])
    assert len(set(NAMES)) == len(NAMES)
    assert [e.paper for e in EXPERIMENTS] == sorted(e.paper for e in EXPERIMENTS)
    assert {e.paper for e in EXPERIMENTS} == set(PAPERS)


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_parameters_of_the_function(name):
    experiment = find(name)
    parameters = inspect.signature(function_of(experiment)).parameters
    assert set(experiment.full) | set(experiment.small) | {"say"} <= set(parameters)
    assert ("seed" in parameters) == ("seed" in experiment.full)
    assert experiment.small
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) == (experiment.folder is not None)
    assert (experiment.folder is None) == (not experiment.files)


@pytest.mark.parametrize("name", NAMES)
def test_options_of_the_command_are_settings(name):
    experiment = find(name)
    command = next(c for c in app.registered_commands if c.name == name)
    shared = {"data", "quick", "out", "quiet", "json"}
    assert shared <= set(inspect.signature(command.callback).parameters)
    settings = {option.setting for option in COMMANDS[name].options}
    assert settings <= set(inspect.signature(function_of(experiment)).parameters)
    assert f"paper {experiment.paper}" in command.callback.__doc__
    assert "Example: python -m experiments " + name in command.callback.__doc__


def test_given_settings_override_quick_settings_and_these_full_ones():
    experiment = find("beams-decoding")
    assert experiment.settings(False) == dict(experiment.full)
    quick = experiment.settings(True, {"n_states": 7, "n_sequences": None})
    assert quick == {**experiment.full, **experiment.small, "n_states": 7}


def test_data_is_found_in_the_common_folder_or_in_its_own(tmp_path):
    nettalk = find("nettalk")
    assert nettalk.missing(None) == nettalk.missing(tmp_path) == ["nettalk/nettalk.data"]
    (tmp_path / "nettalk").mkdir()
    (tmp_path / "nettalk" / "nettalk.data").write_text("")
    assert nettalk.missing(tmp_path) == nettalk.missing(tmp_path / "nettalk") == []
    assert nettalk.locate(tmp_path) == nettalk.locate(tmp_path / "nettalk") == tmp_path / "nettalk"
    assert find("mrf-exact").missing(None) == []
    assert find("mrf-tagging").missing(tmp_path)[:2] == ["conll2000/train.txt", "conll2000/test.txt"]
    with pytest.raises(DataError, match=r"nettalk needs nettalk/nettalk\.data"):
        nettalk.run(None)


def test_unknown_name_is_an_error():
    with pytest.raises(ValueRangeError, match="no experiment is called 'none'; there are mrf-exact"):
        find("none")


def test_quick_experiment_is_marked_in_every_figure():
    said = []
    table = find("mrf-exact").run(quick=True, given={"max_iter": 3}, say=said.append)
    assert table.title.endswith("(quick)")
    assert table.notes[-1].startswith("Quick run with small settings (max_iter=3)")
    assert all(figure.note.startswith("quick: ") for figure in table.figures)
    assert [row[-1] for row in table.rows] == [3, 3, 3]  # iterations
    assert said
    full = find("mrf-exact").run(given={"max_iter": 3})
    assert not any("quick" in text for text in [full.title, *full.notes, *(f.note for f in full.figures)])
    assert [f.ours for f in full.figures] == [f.ours for f in table.figures]


@pytest.mark.parametrize(
    ("paper", "ours", "difference"),
    [(2.0, 3.5, 1.5), ("2.0", 3.5, 1.5), ("20 to 25", 22.0, 0.0), ("20 to 25", 19.0, -1.0), ("20 to 25", 27.0, 2.0)],
)
def test_differences(paper, ours, difference):
    assert Figure("row", paper, ours, "unit").difference == pytest.approx(difference)


@pytest.mark.parametrize(("paper", "ours"), [(None, 1.0), (1.0, None), ("fails", 1.0), ("45 min", 1.0)])
def test_no_difference_without_two_numbers(paper, ours):
    assert Figure("row", paper, ours, "unit").difference is None


def test_settings_as_text():
    assert describe({"parts": ("a", "b"), "rank": 3, "save": None}) == "parts=a b, rank=3"


def test_quick_returns_a_copy():
    table = Table("title", ["a"], figures=[Figure("row", None, 1.0, "unit")])
    assert table.quick("n=1").figures == [replace(table.figures[0], note="quick")]
    assert table.title == "title"
    assert table.notes == []


@pytest.fixture
def data(tmp_path):
    """Two tiny corpora in the layout of the real ones."""
    from trelliswork.data import bundled

    ewt, conll = tmp_path / "ud-en-ewt", tmp_path / "conll2000"
    ewt.mkdir()
    conll.mkdir()
    for part in ("train", "test"):
        sentences = bundled.load(part)[:40]
        rows = ["\n".join(f"{w} {t}" for w, t in zip(s.words, s.tags, strict=True)) for s in sentences]
        (conll / f"{part}.txt").write_text("\n\n".join(rows) + "\n", encoding="utf-8")
        lines = [
            "\n".join(
                f"{i}\t{w}\t_\t_\t{t}\t_\t{i - 1}\t_\t_\t_"
                for i, (w, t) in enumerate(zip(s.words, s.tags, strict=True), 1)
            )
            for s in sentences
        ]
        (ewt / f"en_ewt-ud-{part}.conllu").write_text("\n\n".join(lines) + "\n\n", encoding="utf-8")
    return tmp_path


def test_taggers_of_paper_1(data):
    table = chain_tagging.chain_tagging(data, max_iter=10)
    assert [row[:2] for row in table.rows[:3]] == [
        ["UD EWT XPOS", "HMM, order 1"],
        ["UD EWT XPOS", "HMM, order 2"],
        ["UD EWT XPOS", "CRF, preset pos"],
    ]
    assert len(table.rows) == 6
    assert len(table.figures) == 12
    assert all(40 < row[2] < 100 and 0 <= row[3] < row[2] for row in table.rows)
    assert all("lecture notes" in figure.note for figure in table.figures)
    fewer = chain_tagging.chain_tagging(data, datasets=("conll2000",), max_iter=10, n_sentences=5)
    assert fewer.rows[0][2] < table.rows[3][2]  # less to learn from


def test_induction_of_paper_1(data):
    table = find("chain-induction").run(data, given={"n_states": 5, "max_iter": 12, "n_restarts": 2})
    ours = {figure.row: figure.ours for figure in table.figures}
    assert 0 < ours["one-to-one"] <= ours["many-to-one"] < 100
    curve = table.curves[0].y
    assert len(curve) == 12
    assert all(b >= a - 1e-6 for a, b in pairwise(curve))  # EM never falls
