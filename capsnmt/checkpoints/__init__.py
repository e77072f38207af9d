"""Checkpoints: load, save, average, recover, start a model from another."""
