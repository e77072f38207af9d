"""Trained models for other programs: checkpoints of fairseq's own ``transformer``."""
