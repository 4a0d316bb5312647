"""Parsers are trained by one process: their steps are too small to be shared."""

import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, treebank
from tests.processes import on_ranks
from trelliswork import DependencyParser
from trelliswork.errors import ProcessError

HERE = "tests.models.parser.test_distributed"


def train(group):
    with pytest.raises(ProcessError, match="small steps"):
        made(DependencyParser, **SMALL).fit(*treebank("train", 4))
    return True


def test_a_group_of_processes_is_refused():
    assert on_ranks(2, f"{HERE}:train") == [True, True]
