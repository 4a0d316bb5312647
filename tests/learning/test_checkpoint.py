"""Files of checkpoints that were written by something else."""

import numpy as np
import pytest

from trelliswork.data.storage import write_arrays
from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import Checkpoint


@pytest.mark.parametrize("state", ["1", "[]", "{}", '{"fingerprint": "a run"}', '{"state": {}}'])
def test_other_states_are_refused(state, tmp_path):
    path = tmp_path / "checkpoint"
    write_arrays(path, {"weights": np.zeros(3)}, {"state": state})
    with pytest.raises(DataError, match="of other data or settings"):
        Checkpoint(path, "a run").read()
