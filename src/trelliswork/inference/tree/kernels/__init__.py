"""Compiled inference over dependency trees."""
