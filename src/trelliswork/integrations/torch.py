"""The last layer of a neural tagger or parser: hidden states in, a distribution over labelings or trees out.

Both layers take the output of any encoder, such as a transformer of Hugging Face, and a mask of the positions that
count. With sub-words these are, by convention, the first ones of each word (`first_subwords`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from trelliswork.compute.checks import check_shape
from trelliswork.data.schemes import Scheme, allowed_transitions
from trelliswork.distributions import LinearChain, ProjectiveTree, SpanningTree
from trelliswork.errors import ShapeError, ValueRangeError

IGNORED = -100  # label of positions that do not count, as in torch and transformers


class HeadOutput(NamedTuple):
    """The loss, the mean over sentences (``None`` without gold), and the distribution of the selected positions."""

    loss: Tensor | None
    distribution: Any


def first_subwords(word_ids: Sequence[Sequence[int | None]]) -> Tensor:
    """Return the mask (B, T) of the first sub-word of each word.

    Parameters
    ----------
    word_ids : list of lists of int or None
        ``encoding.word_ids(b)`` of each sentence b of a batch (Hugging Face): the word of each sub-word, ``None`` for
        special tokens and padding.

    Examples
    --------
    >>> first_subwords([[None, 0, 0, 1, None], [None, 0, None, None, None]]).int().tolist()
    [[0, 1, 0, 1, 0], [0, 1, 0, 0, 0]]
    """
    T = max(map(len, word_ids), default=0)
    mask = torch.zeros((len(word_ids), T), dtype=torch.bool)
    for b, words in enumerate(word_ids):
        before = None
        for t, word in enumerate(words):
            mask[b, t] = word is not None and word != before
            before = word
    return mask


def align_labels(labels: Sequence[Sequence[int]], word_ids: Sequence[Sequence[int | None]]) -> Tensor:
    """Return labels of words as labels of sub-words (B, T): -100 but at the first sub-word of each word.

    Examples
    --------
    >>> align_labels([[5, 7]], [[None, 0, 0, 1, None]]).tolist()
    [[-100, 5, -100, 7, -100]]
    """
    mask = first_subwords(word_ids)
    out = torch.full(mask.shape, IGNORED)
    for b, own in enumerate(labels):
        at = mask[b].nonzero()[:, 0].tolist()
        for t in at:
            word = word_ids[b][t]
            assert word is not None
            if word >= len(own):
                raise ShapeError(f"sentence {b} has {len(own)} labels, but word {word} has sub-words.")
            out[b, t] = own[word]
    return out


class _Selection(NamedTuple):
    """The selected positions of a batch, put together at the start of each row."""

    order: Tensor  # (B, W) positions
    lengths: Tensor  # (B,)

    @classmethod
    def of(cls, mask: Tensor | None, B: int, T: int, device: torch.device) -> _Selection:
        if mask is None:
            return cls(torch.arange(T, device=device).expand(B, T), torch.full((B,), T, device=device))
        check_shape("mask", mask.shape, "B T", B=B, T=T)
        mask = mask.to(device).bool()
        lengths = mask.sum(dim=1)
        if B and int(lengths.min()) == 0:
            raise ShapeError(f"mask must select a position of every sentence, but none of {int(lengths.argmin())}.")
        order = torch.argsort((~mask).int(), dim=1, stable=True)
        return cls(order[:, : int(lengths.max()) if B else 0], lengths)

    def take(self, values: Tensor) -> Tensor:
        """Return the selected positions (B, W, ...) of values (B, T, ...)."""
        at = self.order.reshape(*self.order.shape, *(1,) * (values.ndim - 2))
        return values.gather(1, at.expand(*self.order.shape, *values.shape[2:]))

    def put(self, values: Tensor, T: int) -> Tensor:
        """Return values (B, W, S) at their positions (B, T, S), 0 elsewhere."""
        inside = torch.arange(self.order.shape[1], device=values.device) < self.lengths[:, None]
        out = values.new_zeros(values.shape[0], T, values.shape[2])
        at = self.order[:, :, None].expand_as(values)
        return out.scatter_add(1, at, values * inside[:, :, None])


class CRFHead(nn.Module):
    """A linear-chain CRF as the last layer of a token classifier.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    in_features : int, optional
        Size of the hidden states, to which a linear layer is applied. Default: the input is the scores of the labels.
    labels : sequence of str, optional
        Names of the labels; with a ``scheme``, label pairs that it forbids are impossible.
    scheme : {"bio", "bioes"}, optional

    Attributes
    ----------
    transitions : Parameter (n_labels, n_labels)
        ``transitions[i, j]`` is the score of label i before label j.
    start_transitions, end_transitions : Parameter (n_labels,)
        Scores of the first and the last label.

    Examples
    --------
    >>> head = CRFHead(3, in_features=8)
    >>> hidden, labels = torch.randn(2, 5, 8), torch.tensor([[0, 1, 2, 0, 0], [2, 2, -100, -100, -100]])
    >>> loss, chain = head(hidden, labels=labels)
    >>> loss.ndim, chain.lengths.tolist()
    (0, [5, 2])
    """

    def __init__(
        self,
        n_labels: int,
        in_features: int | None = None,
        *,
        labels: Sequence[str] | None = None,
        scheme: Scheme | None = None,
    ) -> None:
        super().__init__()
        if scheme is not None and labels is None:
            raise ValueRangeError("a scheme needs the names of the labels: pass labels=[...].")
        if labels is not None and len(labels) != n_labels:
            raise ValueRangeError(f"labels must be {n_labels} names, got {len(labels)}.")
        self.n_labels = n_labels
        self.emission = nn.Identity() if in_features is None else nn.Linear(in_features, n_labels)
        self.transitions = nn.Parameter(torch.empty(n_labels, n_labels).uniform_(-0.1, 0.1))
        self.start_transitions = nn.Parameter(torch.empty(n_labels).uniform_(-0.1, 0.1))
        self.end_transitions = nn.Parameter(torch.empty(n_labels).uniform_(-0.1, 0.1))
        pairs, first, last = allowed_transitions(labels or [""] * n_labels, scheme)
        for name, values in (("allowed_pairs", pairs), ("allowed_first", first), ("allowed_last", last)):
            self.register_buffer(name, torch.from_numpy(values))

    @classmethod
    def from_pytorch_crf(cls, crf: Any) -> Self:
        """Return a layer with the parameters of a ``torchcrf.CRF`` (pytorch-crf): the same answers to its emissions."""
        self = cls(crf.num_tags)
        with torch.no_grad():
            for name in ("transitions", "start_transitions", "end_transitions"):
                getattr(self, name).copy_(getattr(crf, name))
        return self

    def distribution(self, hidden: Tensor, mask: Tensor | None = None) -> LinearChain:
        """Return the distribution over the labels of the selected positions, in their order.

        Parameters
        ----------
        hidden : Tensor (B, T, in_features), or scores (B, T, n_labels) without ``in_features``
        mask : Tensor of bool (B, T), optional
            Positions that have a label, such as the first sub-words of words; all by default.
        """
        return self._chain(hidden, self._selection(hidden, mask))

    def forward(self, hidden: Tensor, mask: Tensor | None = None, labels: Tensor | None = None) -> HeadOutput:
        """Return the loss, if labels are given, and the distribution.

        Parameters
        ----------
        hidden, mask : as in ``distribution``
            Without a mask, positions whose label is -100 do not count; all by default.
        labels : Tensor of int (B, T), optional
            Gold labels; -100 at a position that the mask selects means that its label is unknown.
        """
        if mask is None and labels is not None:
            mask = labels != IGNORED
        selection = self._selection(hidden, mask)
        chain = self._chain(hidden, selection)
        if labels is None:
            return HeadOutput(None, chain)
        check_shape("labels", labels.shape, "B T", B=hidden.shape[0], T=hidden.shape[1])
        gold = selection.take(labels.to(hidden.device))
        gold = gold.masked_fill(gold == IGNORED, -1)
        inside = torch.arange(gold.shape[1], device=gold.device) < selection.lengths[:, None]
        if bool((gold[inside] < 0).any()):
            log_p = chain.condition(known=gold).log_partition() - chain.log_partition()
        else:
            log_p = chain.log_prob(gold)
        return HeadOutput(-log_p.mean(), chain)

    @torch.no_grad()
    def decode(self, hidden: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """Return the most probable labels of the selected positions of each sentence."""
        chain = self.distribution(hidden, mask)
        rows = zip(chain.mode.tolist(), chain.lengths.tolist(), strict=True)
        return [row[:n] for row, n in rows]

    @torch.no_grad()
    def marginals(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return p(label | sentence) (B, T, n_labels) at the selected positions, 0 elsewhere."""
        selection = self._selection(hidden, mask)
        return selection.put(self._chain(hidden, selection).marginals(), hidden.shape[1])

    def _selection(self, hidden: Tensor, mask: Tensor | None) -> _Selection:
        if hidden.ndim != 3:
            raise ShapeError(f"hidden must have shape (B, T, features), got {tuple(hidden.shape)}.")
        return _Selection.of(mask, hidden.shape[0], hidden.shape[1], hidden.device)

    def _chain(self, hidden: Tensor, selection: _Selection) -> LinearChain:
        scores = selection.take(self.emission(hidden))
        first = self.start_transitions.masked_fill(~self.allowed_first, -torch.inf)  # type: ignore[operator]
        last = self.end_transitions.masked_fill(~self.allowed_last, -torch.inf)  # type: ignore[operator]
        pairs = self.transitions.masked_fill(~self.allowed_pairs, -torch.inf)  # type: ignore[operator]
        return LinearChain(scores, pairs, log_start=first, log_end=last, lengths=selection.lengths)


class TreeHead(nn.Module):
    """A biaffine parser as the last layer: scores of arcs and of their labels (Dozat and Manning, 2017).

    Parameters
    ----------
    in_features : int
        Size of the hidden states.
    n_labels : int, optional
        Number of arc labels; unlabeled trees by default.
    hidden_size : int
        Size of the vectors of heads and dependents.
    trees : {"projective", "spanning"}
        Kind of trees: projective ones, or all.
    dropout : float

    Examples
    --------
    >>> head = TreeHead(8, n_labels=2)
    >>> heads, labels = torch.tensor([[2, 0, 2], [0, 1, -100]]), torch.tensor([[0, 1, 0], [1, 0, -100]])
    >>> loss, trees = head(torch.randn(2, 3, 8), heads=heads, labels=labels)
    >>> loss.ndim, trees.lengths.tolist()
    (0, [3, 2])
    """

    def __init__(
        self,
        in_features: int,
        n_labels: int | None = None,
        *,
        hidden_size: int = 100,
        trees: Literal["projective", "spanning"] = "projective",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if trees not in ("projective", "spanning"):
            raise ValueRangeError(f"trees must be 'projective' or 'spanning', got {trees!r}.")
        self.trees, self.n_labels = trees, n_labels
        self.root = nn.Parameter(torch.randn(in_features) * in_features**-0.5)

        def layer() -> nn.Module:
            return nn.Sequential(nn.Linear(in_features, hidden_size), nn.ReLU(), nn.Dropout(dropout))

        self.head, self.dependent = layer(), layer()
        self.arc = nn.Parameter(torch.zeros(hidden_size, hidden_size))
        self.arc_bias = nn.Parameter(torch.zeros(hidden_size))
        nn.init.xavier_uniform_(self.arc)
        if n_labels is not None:
            self.label_head, self.label_dependent = layer(), layer()
            self.label = nn.Parameter(torch.empty(n_labels, hidden_size + 1, hidden_size + 1))
            nn.init.normal_(self.label, std=hidden_size**-1.0)

    def distribution(self, hidden: Tensor, mask: Tensor | None = None) -> ProjectiveTree | SpanningTree:
        """Return the distribution over the trees of the selected positions; arcs have labels if there are labels.

        Parameters
        ----------
        hidden : Tensor (B, T, in_features)
        mask : Tensor of bool (B, T), optional
            Positions that are words, such as first sub-words; all by default. In trees, words count from 1.
        """
        if hidden.ndim != 3:
            raise ShapeError(f"hidden must have shape (B, T, features), got {tuple(hidden.shape)}.")
        return self._tree(hidden, _Selection.of(mask, hidden.shape[0], hidden.shape[1], hidden.device))

    def forward(
        self, hidden: Tensor, mask: Tensor | None = None, heads: Tensor | None = None, labels: Tensor | None = None
    ) -> HeadOutput:
        """Return the loss, if heads are given, and the distribution.

        Parameters
        ----------
        hidden, mask : as in ``distribution``
            Without a mask, positions whose head is -100 do not count; all by default.
        heads : Tensor of int (B, T), optional
            Gold heads: 0 is the root, w the w-th *word*, not position.
        labels : Tensor of int (B, T), optional
            Gold labels of arcs; needed if the layer has labels.
        """
        if mask is None and heads is not None:
            mask = heads != IGNORED
        selection = _Selection.of(mask, hidden.shape[0], hidden.shape[1], hidden.device)
        tree = self._tree(hidden, selection)
        if heads is None:
            return HeadOutput(None, tree)
        gold = selection.take(heads.to(hidden.device))
        inside = torch.arange(gold.shape[1], device=gold.device) < selection.lengths[:, None]
        gold = gold.masked_fill(~inside, -1)
        if self.n_labels is not None:
            if labels is None:
                raise ShapeError("the layer has arc labels: pass labels= with heads=.")
            names = selection.take(labels.to(hidden.device)).masked_fill(~inside, -1)
            gold = torch.stack([gold, names], dim=2)
        return HeadOutput(-tree.log_prob(gold).mean(), tree)

    @torch.no_grad()
    def decode(self, hidden: Tensor, mask: Tensor | None = None) -> list[list[Any]]:
        """Return the tree of each sentence with the most expected correct arcs: heads, or (head, label) of words."""
        tree = self.distribution(hidden, mask)
        found = tree.mbr().value.tolist()
        rows = [row[:n] for row, n in zip(found, tree.lengths.tolist(), strict=True)]
        return rows if self.n_labels is None else [[(h, k) for h, k in row] for row in rows]

    @torch.no_grad()
    def marginals(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return p(arc) (B, W+1, W+1) from head to dependent, of the W words; the root is 0."""
        marginals = self.distribution(hidden, mask).marginals()
        return marginals if self.n_labels is None else marginals.sum(dim=3)

    def _tree(self, hidden: Tensor, selection: _Selection) -> ProjectiveTree | SpanningTree:
        words = selection.take(hidden)
        nodes = torch.cat([self.root.expand(len(words), 1, -1), words], dim=1)
        head, dependent = self.head(nodes), self.dependent(nodes)
        scores = torch.einsum("bhi,ij,bdj->bhd", head, self.arc, dependent) + (head @ self.arc_bias)[:, :, None]
        if self.n_labels is not None:
            one = nodes.new_ones(*nodes.shape[:2], 1)
            of_head = torch.cat([self.label_head(nodes), one], dim=2)
            of_dependent = torch.cat([self.label_dependent(nodes), one], dim=2)
            named = torch.einsum("bhi,lij,bdj->bhdl", of_head, self.label, of_dependent)
            scores = scores[..., None] + named.log_softmax(dim=3)
        kind = ProjectiveTree if self.trees == "projective" else SpanningTree
        return kind(scores, lengths=selection.lengths)


def chain_from_torch_struct(log_potentials: Tensor, lengths: Tensor | None = None) -> LinearChain:
    """Return the distribution of a ``torch_struct.LinearChainCRF``.

    Parameters
    ----------
    log_potentials : Tensor (B, N-1, S, S)
        As torch-struct has them: ``[b, n, j, i]`` is the score of label j after label i.
    lengths : Tensor of int (B,), optional
        Number of labels of each sequence.
    """
    sizes = check_shape("log_potentials", log_potentials.shape, "B N S S")
    unary = log_potentials.new_zeros(sizes["B"], sizes["N"] + 1, sizes["S"])
    return LinearChain(unary, log_potentials.transpose(2, 3), lengths=lengths)


def tree_from_torch_struct(
    arc_scores: Tensor, lengths: Tensor | None = None, *, projective: bool = True, multiroot: bool = False
) -> ProjectiveTree | SpanningTree:
    """Return the distribution of a ``torch_struct.DependencyCRF``, or ``NonProjectiveDependencyCRF``.

    Parameters
    ----------
    arc_scores : Tensor (B, n, n)
        As torch-struct has them: ``[b, h, d]`` is the score of the arc from word h to word d, ``[b, d, d]`` that of d
        as the root.
    lengths : Tensor of int (B,), optional
    projective : bool
        Whether trees are projective, as in ``DependencyCRF``.
    multiroot : bool
        Whether a tree may have several roots.
    """
    sizes = check_shape("arc_scores", arc_scores.shape, "B n n")
    B, n = sizes["B"], sizes["n"]
    scores = arc_scores.new_zeros(B, n + 1, n + 1)
    scores[:, 1:, 1:] = arc_scores
    scores[:, 0, 1:] = arc_scores.diagonal(dim1=1, dim2=2)
    kind = ProjectiveTree if projective else SpanningTree
    return kind(scores, lengths=lengths, single_root=not multiroot)
