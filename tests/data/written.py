"""Files in formats that the package only reads."""

import numpy as np

from trelliswork.data.schemes import labels_from_spans, spans


def uai_text(graph):
    """Return a graph as a ``MARKOV`` file."""
    lines = ["MARKOV", len(graph.n_states), " ".join(map(str, graph.n_states)), len(graph.scopes)]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in graph.scopes]
    for table in graph.log_tables:
        lines += [table.size, " ".join(map(repr, np.exp(table).ravel().tolist()))]
    return "".join(f"{line}\n" for line in lines)


def crfsuite_text(corpus):
    """Return labels and attributes in CRFsuite's format; weights of 1 are left out."""
    text, ptr, stops = "", corpus.token_ptr.tolist(), corpus.offsets.tolist()
    values = np.ones(len(corpus.attributes)) if corpus.values is None else corpus.values
    for i, label in enumerate(corpus.labels):
        some = slice(ptr[i], ptr[i + 1])
        fields = [escaped(corpus.names[k]) for k in corpus.attributes[some].tolist()]
        weights = ["" if value == 1 else f":{value!r}" for value in values[some].tolist()]
        text += "\t".join([escaped(label), *map(str.__add__, fields, weights)]) + "\n" * (1 + (i + 1 in stops))
    return text


def escaped(name):
    return name.replace("\\", "\\\\").replace(":", "\\:")


def convert(labels, source, target):
    """Return the labels of a sentence in another scheme; in their own they are repaired."""
    return labels_from_spans(spans(labels, source), len(labels), target)
