"""The model in the loop: trained again in the background after every few answers, from the last weights.

Each fifth sentence is drawn at random from the pool, and its labels are never trained on. So the estimate is about the
pool, not about the hard sentences that `select` prefers. Its interval is that of 500 bootstrap samples of sentences,
to which one sentence is added that is half right: a few sentences without a mistake are no proof that there are none.
"""

import logging
import threading
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.answers import Want, ask
from trelliswork.label.pool import Labels, spans_of
from trelliswork.label.session import Session, evidence

FIRST, EVERY = 4, 5  # answers before the first training, and between trainings
GROWTH = 20  # later, the answers grow by a part of so many between trainings
PAUSE = 0.5  # seconds between looks for work
WRITE = 2.0  # seconds between outputs
CANDIDATES, CHOSEN = 1_000, 20  # sentences among which some are chosen; more when trainings are rarer
MAX_ITER = 60
SECOND_LOOKS, SURE = 500, 0.95  # answers compared with the model, and the probability that makes a doubt
FEATURES = {"spans": "ner", "tags": "pos"}
DRAWS = 500
_log = logging.getLogger("trelliswork.label")


class Loop:
    """Trains, estimates and chooses in a thread of its own until `close`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._trained: Any = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="label", daemon=True)

    def start(self) -> "Loop":
        """Start; the labels that there are already count as new."""
        self.session.fresh = len(self.session.answers)
        self.session.dirty = True
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop, and write the output."""
        self._closing = True
        self.session.wake.set()
        self._thread.join(30.0)
        self.session.write()
        self.session.journal.close()

    def _run(self) -> None:
        session, written = self.session, 0.0
        while not self._closing:
            session.wake.wait(PAUSE)
            session.wake.clear()
            try:
                if session.dirty and time.monotonic() - written > WRITE:
                    written = time.monotonic()
                    session.write()
                if session.fresh >= (max(EVERY, len(session.answers) // GROWTH) if self._trained else FIRST):
                    self.step()
                elif session.model is not None and not session.queue:
                    self.choose()
            except Exception as error:  # such as a full disk: answers are still saved, and the page says what is wrong
                _log.exception("the loop of labeling failed")
                session.trouble = str(error)
                session.wake.wait(WRITE)
            else:
                session.trouble = ""

    def step(self) -> None:
        """Train on the answers so far, estimate how good the model is, and choose sentences."""
        session = self.session
        with session.lock:
            session.fresh = 0
            answers = [(n, saved.labels, saved) for n, saved in session.answers.items() if saved.state != "skip"]
        held = [(n, labels) for n, labels, saved in answers if saved.held and saved.state == "done"]
        train = [(n, labels) for n, labels, saved in answers if not (saved.held and saved.state == "done")]
        model = self._fit(train)
        if model is None:
            return
        estimates = [self.estimate(one, held) for one in (model, session.given) if one is not None]
        better = model
        if len(estimates) == 2 and (estimates[1]["value"] or 1.0) > (estimates[0]["value"] or 0.0):
            better, estimates = session.given, estimates[::-1]  # the given model knows more so far
        doubts = self._doubts(better, [(n, labels) for n, labels, saved in answers if saved.state == "done"])
        point = {"answers": len(answers), "held": len(held), **estimates[0]}
        with session.lock:
            self._trained, session.model, session.doubts = model, better, doubts
            session.curve.append(point)
            session.version += 1
        session.journal.append(point, durable=False)
        self.choose()

    def _fit(self, train: list[tuple[int, Labels]]) -> Any:
        """Return a model of the answers; ``None`` if they have too few labels to tell apart."""
        from trelliswork.models.crf import CRF

        session = self.session
        names = {label for _, labels in train for label in labels if label is not None}
        if len(names) < 2:
            return None
        X = [session.pool.words[n] for n, _ in train]
        y = [evidence(labels, session.spans, names) for _, labels in train]
        crf = CRF(FEATURES[session.pool.task], scheme="bio" if session.spans else None, max_iter=MAX_ITER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations on purpose, and labels that are rare so far
            return crf.fit(X, y, start=self._trained).freeze()

    def estimate(self, model: Any, held: list[tuple[int, Labels]]) -> dict[str, float | None]:
        """Return F1 of spans, or accuracy of tags, on held-out sentences, and the bounds of its 95 % interval."""
        if not held:
            return {"value": None, "low": None, "high": None}
        words = [self.session.pool.words[n] for n, _ in held]
        counts = []
        for answer, (_, labels) in zip(ask(model, words), held, strict=True):
            if self.session.spans:
                own, right = set(spans_of(answer.value)), set(spans_of(labels))
                counts.append((2 * len(own & right), len(own) + len(right)))
            else:
                counts.append((sum(map(str.__eq__, answer.value, labels)), len(labels)))
        table = np.array(counts, float)
        size = max(table[:, 1].mean(), 1.0)
        more = np.vstack([table, [size / 2, size]])
        drawn = np.random.default_rng(0).integers(len(more), size=(DRAWS, len(more)))
        low, high = np.quantile(_ratio(more[drawn].sum(axis=1)), [0.025, 0.975])
        value = float(_ratio(table.sum(axis=0)[None])[0])
        return {"value": value, "low": min(float(low), value), "high": max(float(high), value)}

    def choose(self) -> None:
        """Fill the queue with the sentences that teach most."""
        from trelliswork.integrations.selection import select

        session = self.session
        pool, model = session.candidates(CANDIDATES), session.model
        words = [session.pool.words[n] for n in pool]
        if not pool or model is None:
            return
        chosen = select(model, words, max(CHOSEN, 2 * len(session.answers) // GROWTH), by="expected-gain")
        with session.lock:
            session.queue.clear()
            session.queue.extend(pool[one.sentence] for one in chosen)

    def _doubts(self, model: Any, done: list[tuple[int, Labels]]) -> list[dict[str, Any]]:
        """Return places where the model is sure of another label than the annotator's, the surest first."""
        done = done[-SECOND_LOOKS:]
        if not done:
            return []
        words = [self.session.pool.words[n] for n, _ in done]
        found = []
        for answer, own, (n, labels) in zip(ask(model, words, Want(marginals=True)), words, done, strict=True):
            for t, (label, mine, p) in enumerate(zip(answer.value, labels, answer.probabilities, strict=True)):
                if label != mine and p >= SURE:
                    found.append({"sentence": n, "token": t, "word": own[t], "label": mine, "model": label, "p": p})
        return sorted(found, key=lambda one: -one["p"])[:50]


def _ratio(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ratio of two columns; that of nothing found and nothing to find is 1."""
    top, bottom = table[:, 0], table[:, 1]
    return np.where(bottom > 0, top / np.maximum(bottom, 1.0), 1.0)
