"""Several threads may use one fitted model at a time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from trelliswork import CRF, HMM, bundled


@pytest.mark.parametrize("model", [CRF("pos", tol=0.1), HMM(order=2)], ids=lambda model: type(model).__name__)
def test_threads_get_the_answers_of_one(model):
    train, test = bundled.load("train")[:100], [s.words for s in bundled.load("test")[:50]]
    model.fit([s.words for s in train], [s.tags for s in train])
    labels, marginals = model.predict(test), model.predict_marginals(test)
    with ThreadPoolExecutor(4) as pool:
        assert all(answer == labels for answer in pool.map(lambda _: model.predict(test), range(8)))
        assert all(answer == marginals for answer in pool.map(lambda _: model.predict_marginals(test), range(8)))
