"""Probing tasks (Conneau et al. 2018): SentEval's files, and files of our own in its format."""
