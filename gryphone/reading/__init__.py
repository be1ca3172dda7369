"""Anything a user has, read as ink."""
