"""Label sentences in a browser with a model in the loop: each answer is evidence about what is still open.

===========  ====================================================================================
module       content
===========  ====================================================================================
``pool``     the sentences, the labels that they come with, and the output
``journal``  answers on the disk: appended and synced before they count, replayed at the start
``session``  what is labeled, who labels what, the next sentence, the answer given what is fixed
``loop``     the model: training in the background, held-out estimate, selection, second looks
``app``      the address space of the page, beside that of ``serve``
===========  ====================================================================================
"""
