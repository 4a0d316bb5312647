"""Files of model directories, for tests that damage or compare them."""

from pathlib import Path


def weights_of(model: Path) -> Path:
    """Return the file of the weights of a saved model."""
    (file,) = Path(model).glob("weights-*.safetensors")
    return file
