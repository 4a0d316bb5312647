"""Files of checkpoints that were written by something else."""

import numpy as np
import pytest

from trelliswork.data.storage import write_arrays
from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import Checkpoint, _checksum


@pytest.mark.parametrize("state", ["1", "[]", "{}", '{"fingerprint": "a run"}', '{"state": {}}'])
def test_other_states_are_refused(state, tmp_path):
    path = tmp_path / "checkpoint"
    arrays = {"weights": np.zeros(3)}
    write_arrays(path, arrays, {"state": state, "checksum": _checksum(state, arrays)})
    with pytest.raises(DataError, match="of other data or settings"):
        Checkpoint(path, "a run").read()


def test_a_checkpoint_without_a_checksum_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    write_arrays(path, {"weights": np.zeros(3)}, {"state": '{"fingerprint": "a run", "state": {}}'})
    with pytest.raises(DataError, match="checksum is wrong"):
        Checkpoint(path, "a run").read()
