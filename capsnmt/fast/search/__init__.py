"""Beam search on a CPU, and what it needs."""
