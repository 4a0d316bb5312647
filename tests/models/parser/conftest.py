"""Fitted parsers that several test modules share."""

import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, treebank
from trelliswork import DependencyParser


@pytest.fixture(scope="package", params=[1, 2])
def parser(request):
    """A parser of each order; tests must not change it."""
    return made(DependencyParser, request.param, **SMALL).fit(*treebank("train", 300))
