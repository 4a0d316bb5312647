"""A local web page for a saved model: type a sentence, see the posterior, force or forbid labels, ask again.

=============  ===================================================================
module         content
=============  ===================================================================
``app``        routes, headers and limits
``requests``   checked input from the page, and error messages
``server``     start and stop
``abilities``  choice of an explorer by the task of a model; parts of answers
``tagging``    taggers with one layer of labels or several
``parsing``    dependency parsers and grammars
``text``       language models: score, fill, next word, sample, neighbors
=============  ===================================================================
"""
