"""Compiled inside-outside for bracketings and grammars."""
