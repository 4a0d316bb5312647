"""Models of text on the page: score sentences, fill blanks, go on, make up sentences, neighbours of words."""

import math
from collections.abc import Callable
from typing import Any

from trelliswork.data.vocabulary import END, START
from trelliswork.explore.abilities import Abilities, Answer
from trelliswork.explore.answers import layer_answer, plain
from trelliswork.explore.requests import (
    MAX_ANSWERS,
    MAX_LINES,
    MAX_SAMPLE_LENGTH,
    MAX_SAMPLES,
    Body,
    RequestError,
)
from trelliswork.explore.tokens import BLANKS, TokenReader

MAX_WORDS = 200
MAX_SEED = 2**31 - 1


class TextExplorer:
    """A language model behind the page; it offers what its class has."""

    def __init__(self, model: Any, reader: TokenReader | None = None) -> None:
        self.model = model
        self.reader = reader or TokenReader(max_words=MAX_WORDS)
        offered: dict[str, tuple[bool, Callable[[Body], Answer]]] = {
            "fill": (hasattr(model, "fill") and model.kind != "hmm", self.fill),
            "next": (hasattr(model, "predict_next"), self.next),
            "score": (hasattr(model, "log_evidence"), self.score),
            "sample": (hasattr(model, "sample"), self.sample),
            "neighbors": (_embeddings(model) is not None, self.neighbors),
            "tag": (hasattr(model, "best_states"), self.states),
        }
        self.abilities: Abilities = {name: answer for name, (has, answer) in offered.items() if has}

    def facts(self) -> Answer:
        """Sizes that a reader knows the model by."""
        model = self.model
        about = []
        for name, words in (("order", "order"), ("K", "words it looks at"), ("rank", "rank"), ("n_states_", "states")):
            value = getattr(model, name, None)
            if isinstance(value, int) and not (name == "rank" and getattr(model, "form", "") == "full"):
                about.append([words, f"{value:,}"])
        labels = [f"#{z}" for z in range(model.n_states_)] if hasattr(model, "best_states") else []
        layers = [{"name": "state", "labels": labels}] if labels else []
        return {"about": about, "layers": layers, "evidence": False, "word": self._word()}

    def score(self, body: Body) -> Answer:
        """log p of each line, and its perplexity per token (the end counts, if the model has ends)."""
        lines = [line for line in body.text("text").splitlines() if line.strip()]
        body.close()
        if len(lines) > MAX_LINES:
            raise RequestError("the text", f"{MAX_LINES} sentences at most, one a line", f"{len(lines)} lines")
        read = [self.reader.read(line) for line in lines]
        unknown = self._any_word()
        tokens = [[unknown if unknown is not _NONE and word in BLANKS else word for word in row] for row, _ in read]
        values = self.model.log_evidence(tokens).tolist()
        has_end = bool(getattr(self.model, "end", self.model.kind != "pcfg"))
        answers = []
        for (_, words), value in zip(read, values, strict=True):
            mean = -value / (len(words) + has_end)
            perplexity = math.exp(mean) if mean < 700 else math.inf
            answers.append({"words": words, "log_p": plain(value), "perplexity": plain(perplexity)})
        bound = getattr(self.model, "evidence_bound", None)
        return {"sentences": answers, "kind": evidence_kind(self.model), "bound": bound}

    def fill(self, body: Body) -> Answer:
        """The most probable words of each blank, given all other words."""
        words = self.reader.words(body.text("sentence"))
        n = body.whole("n", 10, 1, MAX_ANSWERS)
        body.close()
        blanks = [t for t, word in enumerate(words) if word in BLANKS]
        several = self.model.kind == "hmm-lm"
        if not blanks or (len(blanks) > 1 and not several):
            wanted = "one blank _ or more" if several else "one blank _"
            raise RequestError("the sentence", wanted, f"{len(blanks)} blanks")
        if several:
            tokens = [None if word in BLANKS else word for word in words]
            found = [self.model.fill(tokens, t, n) for t in blanks]
        else:
            found = [self.model.fill([BLANKS[1] if word in BLANKS else word for word in words], n)]
        filled = [{"token": t, "words": _listed(row)} for t, row in zip(blanks, found, strict=True)]
        return {"words": words, "blanks": filled}

    def next(self, body: Body) -> Answer:
        """The most probable next words, and how probable the end is."""
        tokens, words = self.reader.read(body.text("sentence"))
        n = body.whole("n", 10, 1, MAX_ANSWERS)
        body.close()
        found = self.model.predict_next(tokens, n + 1)
        if isinstance(found, tuple):
            listed, end = found
        elif self.model.kind == "hmm":
            found = self.model.predict_next(tokens, len(self.model.vocabulary_) + 1)
            listed, end = [(word, p) for word, p in found if word != END], dict(found).get(END, 0.0)
        else:
            listed = [(word, p) for word, p in found if word not in (START, END)]
            end = float(self.model.next_distribution(tokens)[0])
        return {"words": words, "next": _listed(listed[:n]), "end": plain(end)}

    def sample(self, body: Body) -> Answer:
        """Sentences the model makes up; the same seed gives the same ones."""
        n = body.whole("n", 5, 1, MAX_SAMPLES)
        seed = body.whole("seed", 0, 0, MAX_SEED)
        longest = body.whole("max_length", 40, 2, MAX_SAMPLE_LENGTH)
        body.close()
        answers: list[Answer] = []
        draw = getattr(self.model, "sample_with_states", self.model.sample)
        for drawn in draw(n, seed=seed, max_length=longest):
            words, states = drawn if isinstance(drawn, tuple) else (drawn, None)
            answers.append({"words": [str(word) for word in words], "states": states})
        return {"sentences": answers, "seed": seed}

    def neighbors(self, body: Body) -> Answer:
        """The words with the most similar vectors."""
        from trelliswork.models.mrf.queries import nearest

        word = body.text("word").strip()
        n = body.whole("n", 10, 1, MAX_ANSWERS)
        body.close()
        vocabulary = self.model.vocabulary_
        if word not in vocabulary or vocabulary.id(word) == 0:
            raise RequestError("the word", f"one of the {len(vocabulary) - 1:,} words of the model", word)
        found = nearest(_embeddings(self.model), vocabulary.id(word), n)
        return {"word": word, "neighbors": [{"word": vocabulary[i], "cosine": plain(c)} for i, c in found]}

    def states(self, body: Body) -> Answer:
        """Path and marginals of hidden states that have no names; evidence cannot be given."""
        words = self.reader.words(body.text("sentence"))
        body.whole("k", 1, 1, 1)
        body.close()
        (path,) = self.model.best_states([words])
        (rows,) = self.model.posterior_states([words])
        labels = [f"#{z}" for z in range(rows.shape[1])]
        dicts = [dict(zip(labels, row.tolist(), strict=True)) for row in rows]
        layer = layer_answer("state", labels, (path, dicts), None)
        return {"words": words, "kind": "exact", "layers": [layer], "best": []}

    def _any_word(self) -> Any:
        """What stands for any word in the sentences to score, if the model has it."""
        return None if self.model.kind == "hmm-lm" else _NONE

    def _word(self) -> str:
        """A word to begin with, for neighbours: a frequent one of some length."""
        if "neighbors" not in self.abilities:
            return ""
        items = self.model.vocabulary_.items[1:400]
        return next((word for word in items if len(word) > 3 and word.isalpha()), items[0] if items else "")


_NONE = object()


def evidence_kind(model: Any) -> str:
    """Whether a log evidence is exact, a lower bound or an estimate."""
    if model.kind == "hmm":
        from trelliswork.models.hmm.decoding import state_beam

        return "exact" if state_beam(model.beam, len(model.labels_), model.order) is None else "lower"
    return str(getattr(model, "evidence_kind", "exact"))


def _embeddings(model: Any) -> Any:
    """Vectors of the words, None where the model has none."""
    if model.kind == "lbl" or (model.kind == "mrf-lm" and model.form != "full"):
        return model.embeddings_
    return None


def _listed(found: list[tuple[Any, float]]) -> list[Answer]:
    return [{"word": str(word), "p": plain(p)} for word, p in found]
