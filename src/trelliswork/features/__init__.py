"""Sparse attribute ids of sentences: templates and their extraction."""

from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor
from trelliswork.features.templates import Template, parse_templates, read_templates

__all__ = ["Attributes", "Template", "TemplateExtractor", "parse_templates", "read_templates"]
