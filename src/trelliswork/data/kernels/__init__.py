"""Compiled passes over bytes and ids of text."""
