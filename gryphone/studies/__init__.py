"""Experiments that say what brings what."""
