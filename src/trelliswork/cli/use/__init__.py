"""Commands that use a saved model."""
