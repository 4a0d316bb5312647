"""A local web page for a saved model: type a sentence, see its posterior, force or forbid labels, ask again.

===============  ==================================================================
module           what it holds
===============  ==================================================================
``app``          routes, limits and headers: JSON in, JSON out
``requests``     what a page may send, checked; the errors it gets
``worker``       one thread that computes, so that the server always answers
``server``       the address, the browser, Ctrl-C
``abilities``    what a model is asked: one object for each kind of model
``tokens``       a typed line to the tokens of a model
``answers``      probabilities as plain numbers; which labels are worth showing
``tagging``      CRF, HMM, MRF tagger; ``layers`` factorial CRF
``parsing``      dependency parser; ``grammar`` PCFG
``text``         language models: score, fill, next word, sample, neighbours
===============  ==================================================================
"""
