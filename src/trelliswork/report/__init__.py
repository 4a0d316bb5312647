"""Pages about models.

A :class:`Page` is one self-contained HTML file. The functions below return blocks for it: inline SVG and tables, in
which all text is escaped. The room is above its budget by the drawing of rules, which has come since.
"""

from trelliswork.metrics.calibration import Bin, calibration_error, reliability
from trelliswork.report.charts import calibration, line_chart
from trelliswork.report.page import Html, Page, side_by_side
from trelliswork.report.pages import evaluation_page, model_sections, training_page
from trelliswork.report.samples import Sample
from trelliswork.report.structures import constituent_tree, dependency_tree, trellis
from trelliswork.report.tables import bars, code, confusion, facts, folded, table, word_lists

__all__ = [
    "Bin",
    "Html",
    "Page",
    "Sample",
    "bars",
    "calibration",
    "calibration_error",
    "code",
    "confusion",
    "constituent_tree",
    "dependency_tree",
    "evaluation_page",
    "facts",
    "folded",
    "line_chart",
    "model_sections",
    "reliability",
    "side_by_side",
    "table",
    "training_page",
    "trellis",
    "word_lists",
]
