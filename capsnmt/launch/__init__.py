"""One launcher for every experiment: translation, probing and logical inference.

``capsnmt-run --config multi30k/em_routing`` runs one row of a table: it prepares the data, trains,
and evaluates. Completed stages are skipped and training resumes: to continue, run it again.
"""
