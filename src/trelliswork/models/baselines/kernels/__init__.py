"""Compiled loops over bytes and word ids of text."""
