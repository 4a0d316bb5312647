"""Content of the pages of every family of models, and learning curves."""

import math
from types import SimpleNamespace

import pytest

from tests.report.checks import check_page
from tests.report.model_pages import KINDS, pages_of
from trelliswork import CRF, HMM, KneserNey, MRFLanguageModel
from trelliswork.learning.report import FitReport, Step
from trelliswork.models import LogBilinear
from trelliswork.report.curves import learning_curves

SHOWN = {  # on the page about training
    "crf": ["CRF tagger", "Objective", "Development data", "development accuracy", "Calibration", "Largest weights"],
    "factorial-crf": ["Factorial CRF", "Layer chunk", "Results of layer pos", "Labels of the same token"],
    "hmm": ["Hidden Markov model", "The posterior of a sentence", "States", "Next states", "Confusion matrix"],
    "hmm-lm": ["HMM language model", "Perplexity", "Word by word", "Blanks", "States"],
    "kneser-ney": ["Kneser-Ney language model", "Word by word", "Blanks", "N-grams", "Random sentences"],
    "log-bilinear": ["Log-bilinear language model", "Perplexity", "Word by word", "Nearest neighbors"],
    "mrf-lm": ["Markov random field language model", "Blanks", "Nearest neighbors", "Development data"],
    "mrf-tagger": ["MRF tagger", "Largest weights", "Label pairs", "Most confident errors"],
    "parser": ["Dependency parser", "A tree and its arcs", "By length", "By label", "Development data"],
    "pcfg": ["Probabilistic grammar", "Log-probability", "A tree and its spans", "Rules", "Words", "Random sentences"],
}
EVALUATED = {
    "crf": ["Results", "Confidence and errors", "The posterior of a sentence"],
    "parser": ["Results", "By label", "A tree and its arcs"],
    "pcfg": ["Comparison with simple trees", "Gold tree"],
    "kneser-ney": ["By length", "Hard and easy sentences", "Word by word"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_models(kind):
    for page, shown in zip(pages_of(kind), [SHOWN[kind], EVALUATED.get(kind)], strict=False):
        text = " ".join(check_page(page.render()).words)
        for title in [*shown, "Run"]:
            assert title in text, title


def curves(model, steps, metric="") -> str:
    model.report_ = FitReport(True, "done", 0.0, steps, metric=metric)
    return "".join(learning_curves(model))


def test_language_models_show_perplexities():
    steps = [Step(1, math.log(50), dev=-math.log(60), learning_rate=0.1), Step(2, math.log(40), dev=-math.log(55))]
    shown = curves(LogBilinear(), steps, "log-probability per token")
    assert "training, best 40.0000 at 2" in shown
    assert "development, best 55.0000 at 2" in shown
    shown = curves(HMM(3), [Step(1, -9.0, log_evidence=-8.0, dev=-math.log(7))], "log-probability per token")
    assert "Log-probability" in shown
    assert "development, best 7.0000 at 1" in shown
    assert "bound by iteration" in curves(MRFLanguageModel(), [Step(1, 3.0, dev=-3.5)], "bound")


def test_other_models_show_objective_and_metric():
    shown = curves(CRF(), [Step(1, 30.0, dev=0.9), Step(2, 20.0, dev=0.95)], "F1")
    assert "Objective" in shown
    assert "F1 by iteration" in shown
    assert "best 0.9500 at 2" in shown


def test_stages_are_separate_lines_that_start_at_one():
    steps = [
        Step(1, 3.0, stage="arcs", dev=0.5),
        Step(2, 2.0, stage="arcs", dev=0.6),
        Step(3, 1.0, stage="labels", dev=0.7),
    ]
    shown = curves(SimpleNamespace(), steps, "LAS")
    assert "arcs, best 0.6000 at 2" in shown
    assert "labels, best 0.7000 at 1" in shown


def test_no_history_no_curves():
    assert curves(KneserNey(), []) == ""
    assert curves(CRF(), [Step(0, math.nan, stage="counting")]) == ""
