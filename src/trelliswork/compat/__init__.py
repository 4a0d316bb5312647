"""Interfaces of other packages on our models: a project changes one import.

=========================== =======================================================
module                      what it stands for
=========================== =======================================================
``compat.pycrfsuite``       python-crfsuite: ``Trainer``, ``Tagger``, ``ItemSequence``
``compat.sklearn_crfsuite`` sklearn-crfsuite: ``CRF`` and ``metrics``
``compat.wapiti``           Wapiti: patterns, files, and the commands train, label and dump
=========================== =======================================================

Each has the names, parameters and answers of its original. What has no counterpart is refused with a message that names
what to use instead.
"""
