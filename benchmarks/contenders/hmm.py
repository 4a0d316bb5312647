"""Categorical HMMs: ours, hmmlearn, pomegranate and dynamax on the same symbols, from the same parameters.

Each function takes ``{"task": "em", "text" or "long", "N": ..., "T": ..., "S": ..., "V": ..., "seed": ...}``: N
sequences of T symbols out of V, S states. ``em`` is one iteration of maximum likelihood, E-step and M-step, always from
the same parameters; ``text`` is the same for N tokens with frequencies like those of words, in sequences of 3 to T
tokens; ``long`` is one E-step, ours alone, to measure its memory. Our precision is ``dtype``, float32 unless given.
Choices favor the peer, see the functions. Inputs are converted to the layout of the peer before the timing.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.declarations import Params, Task

Doubles = npt.NDArray[np.float64]


class Problem(NamedTuple):
    """Symbols (N, T), of text (n_tokens,), and initial parameters: (S,), (S, S), (S, V)."""

    symbols: npt.NDArray[np.int64]
    start: Doubles
    transition: Doubles
    emission: Doubles
    lengths: npt.NDArray[np.int64]


class Iteration(NamedTuple):
    """Log-likelihood before an iteration, and probabilities after it: (S,), (S, S), (S, V)."""

    log_evidence: float
    start: Any
    transition: Any
    emission: Any


def problem(params: Params) -> Problem:
    """Return the seeded problem: uniform symbols, rows of parameters from Dirichlet(2, ..., 2).

    Values near 0 are rare with this prior: the M-step of dynamax fails if a count is lost next to 1 in float32.
    """
    N, T, S, V = (params[name] for name in "NTSV")
    rng = np.random.default_rng(params["seed"])
    if params.get("task") == "text":
        lengths = rng.integers(3, T + 1, N)
        lengths = lengths[: int(np.searchsorted(lengths.cumsum(), N)) + 1]
        lengths[-1] -= lengths.sum() - N
        by_rank = 1 / np.arange(1.0, V + 1)
        symbols = rng.choice(V, N, p=by_rank / by_rank.sum())
    else:
        symbols, lengths = rng.integers(0, V, (N, T)), np.full(N, T)
    rows = [rng.standard_gamma(2.0, shape) for shape in ((S,), (S, S), (S, V))]
    start, transition, emission = (row / row.sum(axis=-1, keepdims=True) for row in rows)
    return Problem(symbols, start, transition, emission, lengths)


def digest_iteration(result: Iteration) -> dict[str, Any]:
    """Return the log-likelihood, the trace of the transition matrix and a corner of each table."""
    start, transition, emission = (np.asarray(array, dtype=np.float64) for array in result[1:])
    return {
        "log_evidence": float(result.log_evidence),
        "trace": float(np.trace(transition)),
        "start": start[:6].tolist(),
        "transition": transition[:6, :6].tolist(),
        "emission": emission[:6, :6].tolist(),
    }


def trelliswork(params: Params) -> Task:
    """Ours."""
    from trelliswork.models.hmm.em import em
    from trelliswork.models.hmm.objective import Counts, HMMParameters, Sequences, expected_counts

    symbols, *rows, lengths = problem(params)
    log_start, log_transition, log_emission = (np.log(row) for row in rows)
    parameters = HMMParameters(log_start, log_transition, None, log_emission)
    sequences = Sequences(np.concatenate([[0], lengths.cumsum()]), symbols.ravel().astype(np.int32))
    dtype = np.dtype(params.get("dtype", "float32"))

    def iterate() -> Iteration:
        new, report = em(parameters, sequences, max_iter=1, tol=0, dtype=dtype)
        return Iteration(report.value, new.log_start, new.log_transition, new.log_emission)

    def digest(result: Iteration) -> dict[str, Any]:
        return digest_iteration(Iteration(result.log_evidence, *(np.exp(log_row) for log_row in result[1:])))

    def count() -> Counts:
        return expected_counts(parameters, sequences, dtype=dtype)

    if params["task"] == "long":
        return Task(count, lambda counts: {"log_evidence": counts.total, "transitions": float(counts.transition.sum())})
    return Task(iterate, digest)


def hmmlearn(params: Params) -> Task:
    """hmmlearn, which has one thread and float64; ``fit`` of one iteration with its faster implementation."""
    from hmmlearn.hmm import CategoricalHMM

    symbols, start, transition, emission, lengths = problem(params)
    X = symbols.reshape(-1, 1)
    model = CategoricalHMM(params["S"], n_features=params["V"], implementation="scaling", n_iter=1, init_params="")

    def iterate() -> Iteration:
        model.startprob_, model.transmat_, model.emissionprob_ = start, transition, emission
        model.fit(X, lengths)
        return Iteration(model.monitor_.history[0], model.startprob_, model.transmat_, model.emissionprob_)

    return Task(iterate, digest_iteration)


def pomegranate(params: Params) -> Task:
    """pomegranate in float32, all sequences in one batch, without checks of the data.

    It always has an end event. With end probability 1 in every state the likelihood is that of a model without ends,
    and so are the new transitions after the digest removes the ends from their rows.
    """
    import torch
    from pomegranate.distributions import Categorical
    from pomegranate.hmm import DenseHMM

    if params["task"] == "text":
        raise NotImplementedError("sequences of different lengths")
    symbols, *rows, _ = problem(params)
    X = torch.from_numpy(symbols[:, :, None])
    start, transition, emission = (torch.from_numpy(row.astype(np.float32)) for row in rows)
    states = [Categorical(probs[None], check_data=False) for probs in emission]
    model = DenseHMM(states, edges=transition, starts=start, ends=torch.ones(len(start)), check_data=False)
    at_first = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def iterate() -> Iteration:
        model.load_state_dict(at_first)
        log_evidence = model.summarize(X).sum()
        model.from_summaries()
        return Iteration(float(log_evidence), model.starts, model.edges, [state.probs[0] for state in states])

    def digest(result: Iteration) -> dict[str, Any]:
        transition = result.transition.double().softmax(dim=1)
        emission = torch.stack(result.emission)
        return digest_iteration(Iteration(result.log_evidence, result.start.exp(), transition, emission))

    return Task(iterate, digest)


def dynamax(params: Params) -> Task:
    """dynamax in float32: ``fit_em`` of one iteration, compiled once.

    Without ``jit``, ``fit_em`` compiles in every call. Concentrations of 1 make it maximum likelihood; it returns the
    log joint, from which the constant log prior is subtracted.
    """
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import CategoricalHMM

    if params["task"] == "text":
        raise NotImplementedError("sequences of different lengths")
    symbols, *rows, _ = problem(params)
    emissions = jnp.asarray(symbols[:, :, None], dtype=jnp.int32)
    start, transition, emission = (jnp.asarray(row, dtype=jnp.float32) for row in rows)
    model = CategoricalHMM(
        params["S"], 1, params["V"],
        initial_probs_concentration=1.0, transition_matrix_concentration=1.0, emission_prior_concentration=1.0,
    )  # fmt: skip
    first, properties = model.initialize(
        initial_probs=start, transition_matrix=transition, emission_probs=emission[:, None]
    )

    @jax.jit
    def fit(parameters: Any, emissions: Any) -> Any:
        return model.fit_em(parameters, properties, emissions, num_iters=1, verbose=False)

    def iterate() -> Any:
        return jax.block_until_ready(fit(first, emissions))

    def digest(result: Any) -> dict[str, Any]:
        new, log_joint = result
        log_evidence = float(log_joint[0]) - float(model.log_prior(first))
        probs = new.emissions.probs[:, 0]
        return digest_iteration(Iteration(log_evidence, new.initial.probs, new.transitions.transition_matrix, probs))

    return Task(iterate, digest)
