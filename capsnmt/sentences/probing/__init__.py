"""Probing tasks (Conneau et al. 2018): the files of SentEval, and our own in its format."""
