"""CRF training within beams, and exact training, both by our package.

Each function takes ``{"task": ..., "beam": ...}``. Task ``synthetic``: sequences from a random hidden Markov model with
``S`` states, from zero weights to the stopping rule of L-BFGS.
Task ``nettalk``: letters to phonemes, pairs of phonemes as states, ``n_iter`` iterations from the weights of the first
order; ``n_words`` cuts the data. Digests are test accuracy by exact decoding (NetTalk: as the model decodes).
"""

from typing import Any

from benchmarks.contenders.crf import data_folder
from benchmarks.declarations import Params, Task


def trelliswork(params: Params) -> Task:
    """Train within the beam."""
    return _task(params, params["beam"])


def exact(params: Params) -> Task:
    """Train with the exact kernels."""
    return _task(params, None)


def _task(params: Params, beam: str | None) -> Task:
    return (_nettalk if params["task"] == "nettalk" else _synthetic)(params, beam)


def _synthetic(params: Params, beam: str | None) -> Task:
    from experiments.beams import CRFProblem, train
    from trelliswork.distributions import Beam

    S = params["S"]
    problem = CRFProblem.draw(
        params["n_train"],
        params["n_test"],
        params["seed"],
        n_states=S,
        n_symbols=params["n_symbols"],
        length=params.get("length", 75),
    )
    chosen = None if beam is None else Beam.parse(beam)

    def run() -> Any:
        return train(problem, chosen, l2=params["l2"], max_iter=params["n_iter"])

    return Task(run, lambda result: {"accuracy": problem.accuracy(result.weights)})


def _nettalk(params: Params, beam: str | None) -> Task:
    import warnings

    from experiments.nettalk_words import read_nettalk, split_words
    from trelliswork import CRF

    letters, phonemes = read_nettalk(data_folder() / "nettalk" / "nettalk.data")
    n = params.get("n_words") or len(letters)
    (X, y), (X_test, y_test) = split_words(letters[:n], phonemes[:n], n_test=min(934, n // 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        first = CRF("letters", l2=0.5, scheme=None, max_iter=30).fit(X, y)

    def run() -> CRF:
        model = CRF("letters", l2=0.5, scheme=None, order=2, beam=beam, max_iter=params["n_iter"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return model.fit(X, y, start=first)

    return Task(run, lambda model: {"accuracy": model.score(X_test, y_test)})
