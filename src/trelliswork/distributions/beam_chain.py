"""Label sequences within a beam: few labels per position, chosen by a forward pass; a lower bound on log Z."""

import torch
from torch import Tensor

from trelliswork.distributions.base import Kind
from trelliswork.distributions.linear_chain import LinearChain
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam import Beam, passes


class BeamChain(LinearChain):
    r"""A ``LinearChain`` restricted to the labels that a beam keeps at each position, made by ``LinearChain.within``.

    .. math:: \log Z_I = \log \sum_{y \in I_1 \times \dots \times I_T} \exp(\mathrm{score}(y)) \le \log Z

    The sets :math:`I_t` are chosen once; within them every result is exact, so the marginals are the gradient of
    :math:`\log Z_I`. Labels outside have probability 0.

    Attributes
    ----------
    beam : Beam
    kept : Tensor (B, T)
        Share of the forward mass that the beam kept; minus its logarithm is the divergence of the compressed belief
        from the full one at this position (paper 2, eq. 8). 1 in the padding.
    sizes : Tensor of int (B, T)
        Number of labels in each beam; 0 in the padding.
    statistics : BeamStatistics
        Mean and largest size, and an estimate of the total log Z - log Z_I of all sequences.

    Notes
    -----
    log Z, marginals and the best labeling take O(T |I| S) per sequence; other queries, and all with gradients, take as
    long as those of a ``LinearChain``, O(T S^2). ``argmax`` is within beams chosen by the scores of the best prefixes
    (paper 2, section 4.1). These may differ: its log-probability is -inf if a label is outside of ``beam``.

    Examples
    --------
    >>> chain = LinearChain(torch.tensor([[[4.0, 0.0, -4.0], [0.0, 4.0, -4.0]]]), torch.zeros(3, 3))
    >>> beam = chain.within("size=2")
    >>> beam.kind, beam.sizes.tolist(), bool(beam.log_partition() < chain.log_partition())
    ('lower', [[2, 2]], True)
    """

    kind: Kind = "lower"

    def __init__(self, chain: LinearChain, beam: Beam) -> None:
        if chain._by_torch:
            raise ValueRangeError(f"beams need tensors on the CPU, got {chain._device}.")
        expected = passes.expectations(chain._potentials, beam)
        B, T, S = chain.log_unary.shape
        mask = torch.zeros((B, T, S), dtype=torch.bool)
        inside = torch.arange(T) < chain.lengths[:, None]
        mask[inside] = torch.from_numpy(passes.members(expected.sets, 0, len(expected.kept), S))
        mask[~inside] = True
        unary = chain.log_unary.masked_fill(~mask, -torch.inf)
        super().__init__(unary, chain.log_pairwise, lengths=chain.lengths)
        self.beam, self.statistics, self._whole = beam, expected.statistics, chain
        self.kept = torch.ones((B, T), dtype=torch.float64)
        self.kept[inside] = torch.from_numpy(expected.kept)
        self.sizes = torch.zeros((B, T), dtype=torch.int64)
        self.sizes[inside] = torch.from_numpy(expected.sizes)
        self._value = torch.from_numpy(expected.log_z)
        self._probabilities = torch.zeros((B, T, S), dtype=chain.log_unary.dtype)
        position, label = torch.from_numpy(expected.sizes), torch.from_numpy(expected.sets.states).long()
        where = torch.repeat_interleave(inside.flatten().nonzero()[:, 0], position)
        self._probabilities.reshape(-1, S)[where, label] = torch.from_numpy(expected.marginals)

    def __repr__(self) -> str:
        return f"BeamChain({super().__repr__()}, beam={str(self.beam)!r}: {self.statistics})"

    def marginals(self) -> Tensor:
        """Return p(y_t = j) within the beam, (B, T, S); zero outside and in the padding."""
        return super().marginals() if self._needs_graph else self._probabilities.clone()

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        paths = passes.viterbi(self._whole._potentials, self.beam)
        return self._with_scores(paths.labels, paths.scores)

    def _masked(self, mask: Tensor) -> "BeamChain":
        """Return the chain given evidence, with a new choice of the beam."""
        return BeamChain(self._whole._masked(mask), self.beam)

    def _copies(self, B: int) -> "BeamChain":
        return BeamChain(self._whole._copies(B), self.beam)

    def _log_z(self) -> Tensor:
        return super()._log_z() if self._needs_graph else self._value
