"""Corpora from their published files to fairseq data-bins: declarative recipes, one engine."""
