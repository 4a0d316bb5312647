"""A fast start for dense models: EM on probabilities, then the network is taught what EM counted."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from trelliswork.learning.em import EMStep, Priors, em, random_parameters
from trelliswork.learning.hmm_counts import expected_counts
from trelliswork.learning.hmm_data import Counts, Sequences
from trelliswork.learning.hmm_lm_network import Drawn, StateNetwork
from trelliswork.learning.hmm_lm_objective import Sentences
from trelliswork.learning.hmm_lm_training import torch_threads

TEACHING_RATE = 1e-2


def em_start(
    network: StateNetwork,
    sentences: Sentences,
    *,
    n_iter: int,
    smoothing: float = 0.1,
    n_steps: int = 100,
    seed: int = 0,
    callback: Callable[[EMStep], bool | None] | None = None,
) -> Counts:
    """Run EM for ``n_iter`` iterations from a random start, then fit the network to the expected counts.

    Parameters
    ----------
    network : StateNetwork
        With a dense transition, no blocks; changed in place.
    sentences : Sentences
    n_iter : int
    smoothing : float
        Pseudo-counts of EM: a count that is added to each transition; a hundredth of it to each emission.
    n_steps : int
        Gradient steps on the counts: no sums over sentences, so they are cheap.
    """
    shape = network.shape
    sequences = Sequences(sentences.offsets, sentences.words.astype(np.int32))
    priors = Priors(smoothing, smoothing, 0.0, smoothing / 100)
    first = random_parameters(shape.n_states, shape.n_words, seed=seed)
    learned, _ = em(first, sequences, priors=priors, max_iter=n_iter, tol=0, dtype=np.float32, callback=callback)
    counts = expected_counts(learned, sequences, dtype=np.float32)
    with torch_threads(network):
        teach(network, counts, n_steps)
    return counts


def teach(network: StateNetwork, counts: Counts, n_steps: int) -> list[float]:
    """Maximise the expected log-likelihood of counts of a dense model: the M-step by gradients; cost of each step."""
    tables: list[Tensor] = [
        torch.from_numpy(np.ascontiguousarray(table, np.float32))
        for table in (counts.start, counts.transition, counts.emission.T)
    ]
    total = float(tables[2].sum())
    optimiser = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], TEACHING_RATE, weight_decay=0)
    costs = []
    for k in range(n_steps):
        optimiser.param_groups[0]["lr"] = TEACHING_RATE * (1 + math.cos(math.pi * k / n_steps)) / 2
        drawn = Drawn()
        hidden = network.state_block(network.state_embedding)
        loss = -(tables[0] @ network.log_start(drawn))
        loss = loss - (tables[1] * torch.log_softmax(network.state_output(hidden), dim=1)).sum()
        loss = (loss - (tables[2] * network.log_emission(drawn)).sum()) / total
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        costs.append(float(loss.detach()))
    return costs
