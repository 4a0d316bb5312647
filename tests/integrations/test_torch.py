"""Layers for neural taggers and parsers: masks, sub-words, losses, and pytorch-crf and torch-struct where installed."""

import pytest

torch = pytest.importorskip("torch")

from trelliswork import LinearChain  # noqa: E402
from trelliswork.errors import ShapeError, ValueRangeError  # noqa: E402
from trelliswork.integrations.torch import (  # noqa: E402
    CRFHead,
    TreeHead,
    align_labels,
    chain_from_torch_struct,
    first_subwords,
    tree_from_torch_struct,
)

WORD_IDS = [[None, 0, 0, 1, 2, None], [None, 0, 1, None, None, None]]
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_sub_words_and_special_tokens_do_not_count():
    head, hidden, mask = CRFHead(3, 4), torch.randn(2, 6, 4), first_subwords(WORD_IDS)
    labels = align_labels([[0, 2, 1], [1, 1]], WORD_IDS)
    chain = head.distribution(hidden, mask)
    assert chain.lengths.tolist() == [3, 2]
    loss = head(hidden, mask, labels).loss
    close(loss, head(hidden, labels=labels).loss)  # -100 masks as well
    alone = []
    for b, at in ((0, [1, 3, 4]), (1, [1, 2])):
        scores = head.emission(hidden[b : b + 1, at])
        one = LinearChain(scores, head.transitions, log_start=head.start_transitions, log_end=head.end_transitions)
        alone.append(-one.log_prob(labels[b : b + 1, at]))
        close(head.marginals(hidden, mask)[b, at], one.marginals()[0])
        assert head.decode(hidden, mask)[b] == one.mode[0].tolist()
    close(loss, torch.cat(alone).mean())
    assert head.marginals(hidden, mask)[0, [0, 2, 5]].abs().sum() == 0
    loss.backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in head.parameters())


def test_unknown_labels_are_summed_out():
    head, scores = CRFHead(3), torch.randn(1, 3, 3)
    known = torch.tensor([[1, -100, 2]])
    loss = head(scores, torch.ones(1, 3, dtype=torch.bool), known).loss
    every = [head(scores, labels=torch.tensor([[1, k, 2]])).loss for k in range(3)]
    close(-loss, torch.logsumexp(-torch.stack(every), 0))


def test_a_scheme_forbids_label_pairs():
    names = ["O", "B-X", "I-X"]
    head = CRFHead(3, labels=names, scheme="bio")
    scores = torch.tensor([[[0.0, 0.0, 9.0], [0.0, 0.0, 9.0]]])
    assert head.decode(scores) == [[1, 2]]
    assert head.marginals(scores)[0, 0, 2] == 0
    head(scores, labels=torch.tensor([[0, 1]])).loss.backward()
    assert head.transitions.grad.isfinite().all()
    with pytest.raises(ValueRangeError, match="names of the labels"):
        CRFHead(3, scheme="bio")
    with pytest.raises(ValueRangeError, match="3 names"):
        CRFHead(3, labels=["O"])


def test_wrong_shapes_are_errors():
    head = CRFHead(3)
    with pytest.raises(ShapeError, match="shape"):
        head(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="mask"):
        head(torch.zeros(1, 2, 3), torch.ones(1, 3))
    with pytest.raises(ShapeError, match="none of 1"):
        head(torch.zeros(2, 2, 3), torch.tensor([[1, 0], [0, 0]]))
    with pytest.raises(ShapeError, match="has 1 labels"):
        align_labels([[1]], [[0, 1]])
    with pytest.raises(ShapeError, match="arc labels"):
        TreeHead(4, 2)(torch.zeros(1, 2, 4), heads=torch.tensor([[0, 1]]))
    with pytest.raises(ValueRangeError, match="projective"):
        TreeHead(4, trees="flat")


@pytest.mark.parametrize("trees", ["projective", "spanning"])
def test_a_tree_layer_learns_its_sentences(trees):
    head, hidden = TreeHead(6, 2, hidden_size=16, trees=trees), torch.randn(2, 5, 6)
    heads = torch.tensor([[2, 0, -100, 2, 3], [0, 1, -100, -100, -100]])
    labels = torch.tensor([[0, 1, -100, 0, 1], [1, 0, -100, -100, -100]])
    optimizer = torch.optim.Adam(head.parameters(), 0.02)
    first = None
    for _ in range(40):
        optimizer.zero_grad()
        loss = head(hidden, heads=heads, labels=labels).loss
        first = loss.item() if first is None else first
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2 * first
    mask = heads != -100
    assert head.decode(hidden, mask) == [[(2, 0), (0, 1), (2, 0), (3, 1)], [(0, 1), (1, 0)]]
    marginals = head.marginals(hidden, mask)
    close(marginals[0].sum(0)[1:5], torch.ones(4))
    plain = TreeHead(6, trees=trees)
    assert [len(row) for row in plain.decode(hidden, mask)] == [4, 2]
    close(plain(hidden, heads=heads).loss, -plain.distribution(hidden, mask).log_prob(
        torch.tensor([[2, 0, 2, 3], [0, 1, -1, -1]])).mean())  # fmt: skip


def test_state_dicts_have_all_parameters():
    head = CRFHead(3, 4, labels=["O", "B-X", "I-X"], scheme="bio")
    other = CRFHead(3, 4)
    other.load_state_dict(head.state_dict())
    hidden = torch.randn(1, 4, 4)
    close(other.marginals(hidden), head.marginals(hidden))


def test_pytorch_crf_answers_the_same():
    torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed: pip install pytorch-crf")
    theirs, scores = torchcrf.CRF(4, batch_first=True), torch.randn(3, 6, 4)
    mask, tags = torch.arange(6) < torch.tensor([[6], [4], [1]]), torch.randint(0, 4, (3, 6))
    head = CRFHead.from_pytorch_crf(theirs)
    assert head.decode(scores, mask) == theirs.decode(scores, mask)
    close(-head(scores, mask, tags).loss, theirs(scores, tags, mask, reduction="mean"))


@pytest.mark.filterwarnings("ignore:.*arg_constraints")
def test_torch_struct_answers_the_same():
    struct = pytest.importorskip("torch_struct", reason="torch-struct is not installed: pip install torch-struct")
    potentials, lengths = torch.randn(2, 4, 3, 3), torch.tensor([5, 3])
    chain = chain_from_torch_struct(potentials, lengths)
    theirs = struct.LinearChainCRF(potentials.clone(), lengths)
    close(chain.log_partition(), theirs.partition.detach())
    close(chain.edge_marginals().transpose(2, 3), theirs.marginals.detach())
    arcs = torch.randn(2, 4, 4)
    for multiroot in (False, True):
        theirs = struct.NonProjectiveDependencyCRF(arcs.clone(), torch.tensor([4, 4]), multiroot=multiroot)
        tree = tree_from_torch_struct(arcs, projective=False, multiroot=multiroot)
        close(tree.log_partition(), theirs.partition.detach(), rtol=1e-4, atol=1e-4)
        ours = tree.marginals()
        close(ours[:, 1:, 1:] + torch.diag_embed(ours[:, 0, 1:]), theirs.marginals.detach(), rtol=1e-4, atol=1e-4)


def tiny_transformer():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertModel(config, add_pooling_layer=False)


@pytest.mark.slow
def test_fine_tuning_of_a_small_transformer():
    """Labels depend on sub-words and on the label before: the encoder and the CRF learn them together."""
    encoder, head = tiny_transformer(), CRFHead(3, 16, labels=["O", "B-X", "I-X"], scheme="bio")
    ids = torch.randint(4, 40, (16, 8))
    word_ids = [[None, 0, 0, 1, 2, 2, 3, None]] * 16
    words = [[int(ids[b, 1] % 2), 0, 1, 2] for b in range(16)]
    labels, mask = align_labels(words, word_ids), first_subwords(word_ids)
    attention = torch.ones_like(ids)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = head(encoder(ids, attention_mask=attention).last_hidden_state, mask, labels).loss
        loss.backward()
        optimizer.step()
    encoder.eval()
    with torch.no_grad():
        hidden = encoder(ids, attention_mask=attention).last_hidden_state
    assert head.decode(hidden, mask) == words
    assert head.marginals(hidden, mask).sum() == pytest.approx(16 * 4, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("trees", ["projective", "spanning"])
def test_fine_tuning_of_a_small_transformer_to_trees(trees):
    """The head of the third word depends on a sub-word: the encoder and the tree layer learn it together."""
    encoder, head = tiny_transformer(), TreeHead(16, 2, hidden_size=16, trees=trees)
    ids, word_ids = torch.randint(4, 40, (16, 6)), [[None, 0, 0, 1, 2, None]] * 16
    arcs = [[2, 0, 1 if ids[b, 4] % 2 and trees == "spanning" else 2] for b in range(16)]
    names = [[0, 1, int(ids[b, 4] % 2)] for b in range(16)]
    heads, labels, mask = (*(align_labels(rows, word_ids) for rows in (arcs, names)), first_subwords(word_ids))
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 0.01)
    for _ in range(80):
        optimizer.zero_grad()
        head(encoder(ids).last_hidden_state, mask, heads=heads, labels=labels).loss.backward()
        optimizer.step()
    encoder.eval()
    with torch.no_grad():
        hidden = encoder(ids).last_hidden_state
    want = [list(zip(*rows, strict=True)) for rows in zip(arcs, names, strict=True)]
    assert head.decode(hidden, mask) == want
    assert head.marginals(hidden, mask).sum() == pytest.approx(16 * 3, rel=1e-4)
