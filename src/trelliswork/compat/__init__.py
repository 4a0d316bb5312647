"""Interfaces of other packages on our models: a project changes one import.

=========================== =======================================================
module                      what it stands for
=========================== =======================================================
``compat.pycrfsuite``       python-crfsuite: ``Trainer``, ``Tagger``, ``ItemSequence``
``compat.sklearn_crfsuite`` sklearn-crfsuite: ``CRF`` and ``metrics``
=========================== =======================================================

Each has the names, parameters and answers of its original. What has no counterpart is refused with a message that names
what to use instead.
"""
