"""Charts: well-formed, inside their box, with correct values."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.checks import check_picture, pictures
from trelliswork.errors import ShapeError
from trelliswork.report import Bin, calibration, calibration_error, line_chart, reliability
from trelliswork.report.charts import short, ticks

finite = st.floats(-1e9, 1e9).map(lambda x: round(x, 6))


@given(st.lists(st.tuples(st.integers(0, 500), st.one_of(finite, st.just(math.nan), st.just(math.inf))), max_size=30))
def test_lines_stay_in_their_box(points):
    shown = line_chart([("<a>", [x for x, _ in points], [y for _, y in points])], x="x", y="y", best="min")
    if not any(math.isfinite(y) for _, y in points):
        assert shown == ""
        return
    picture = pictures(shown)[0]
    check_picture(picture)
    line = next(node for node in picture.iter() if node.attrib.get("class", "").startswith("curve"))
    numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", line.attrib["d"])]
    assert all(0 <= x <= 460 for x in numbers[::2])
    assert all(11.9 <= y <= 216.1 for y in numbers[1::2])


def test_a_line_rises_where_values_increase():
    picture = pictures(line_chart([("a", [1, 2, 3], [5.0, 7.0, 6.0])], x="x", y="y"))[0]
    d = next(n.attrib["d"] for n in picture.iter() if n.attrib.get("class", "").startswith("curve"))
    xs, ys = (([float(n) for n in re.findall(r"[\d.]+", d)])[k::2] for k in (0, 1))
    assert xs == sorted(xs)
    assert ys[0] > ys[2] > ys[1]  # y increases downwards


def test_the_best_point_is_in_the_legend_and_long_lines_are_thinned():
    xs = list(range(5000))
    shown = line_chart([("dev", xs, [abs(x - 1234.0) for x in xs])], x="x", y="y", best="max")
    assert "best 3,765.0 at 4,999" in shown
    assert len(shown) < 12_000
    with pytest.raises(ShapeError, match="as many xs as ys"):
        line_chart([("a", [1], [])], x="x", y="y")


@given(finite, finite)
def test_ticks_are_round_and_cover_the_range(a, b):
    low, high = min(a, b), max(a, b)
    if 0 < high - low < 1e-5 * max(abs(low), abs(high)):
        return  # closer than the precision of a tick
    numbers = ticks(low, high)
    rounding = 1e-8 * (high - low)  # a tick may be missed by a billionth of a step
    assert numbers[0] <= low + 1e-6 * abs(low) + rounding
    assert numbers[-1] >= high - 1e-6 * abs(high) - rounding
    assert numbers == sorted(set(numbers))
    assert 2 <= len(numbers) <= 9


def test_short_numbers():
    assert [short(v) for v in (0.0, 1e3, 2.5e6, -5e9, 0.05)] == ["0", "1k", "2.5M", "−5G", "0.05"]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60))
def test_bins_contain_every_answer_once(answers):
    bins = reliability([p for p, _ in answers], [hit for _, hit in answers])
    assert sum(b.count for b in bins) == len(answers)
    assert math.isclose(sum(b.count * b.accuracy for b in bins), sum(hit for _, hit in answers), abs_tol=1e-9)
    assert math.isclose(sum(b.count * b.probability for b in bins), sum(p for p, _ in answers), abs_tol=1e-9)
    for picture in pictures(calibration(bins)):
        check_picture(picture)
    assert (calibration(bins) == "") == (not answers)


def test_calibration_error():
    assert calibration_error([]) == 0
    assert math.isclose(calibration_error([Bin(0.9, 0.8, 30), Bin(0.5, 0.7, 10)]), 0.125)
    assert "Calibration error 12.50 %" in calibration([Bin(0.9, 0.8, 30), Bin(0.5, 0.7, 10)])
