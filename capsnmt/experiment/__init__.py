"""One launcher for every experiment: prepare, train, average, generate, score.

``python -m capsnmt.experiment --config multi30k/em_routing`` runs one table row. Every stage is
skipped when it is complete and training resumes, so the same command again always is the way on.
"""
