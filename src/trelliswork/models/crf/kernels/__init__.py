"""Compiled objectives and updates of linear-chain CRFs."""
