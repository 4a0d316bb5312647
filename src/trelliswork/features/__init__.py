"""Sparse attribute ids of sentences.

Two ideas: templates over columns (``templates``, ``presets``, ``extraction``, ``word_ids``), or attributes that the
user computed (``ready``); ``hashed`` does both without a dictionary, ``spelled`` reads other tools' templates, and
``feature_map`` chooses. Beside them is what is known about words (``brown``, ``vectors``, ``lexicon``).

The room is larger than its budget by the reader of ready attributes (``ready``, ``kernels/ready``): it reads dicts from
python-crfsuite programs 2.7 times as fast as a loop in Python, which takes longer than the decoding of a record.
"""

from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor
from trelliswork.features.templates import Template, parse_templates, read_templates

__all__ = ["Attributes", "Template", "TemplateExtractor", "parse_templates", "read_templates"]
