"""Compiled belief propagation for second-order dependency trees."""
