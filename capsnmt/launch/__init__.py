"""One launcher for every experiment: translation, probing and logical inference.

``capsnmt-run --config multi30k/em_routing`` runs one row of a table: it prepares the data, trains,
and evaluates. Completed steps are skipped and training resumes: to continue, run it again.

Read `dispatch` first, then `plan` (flags to runs), `training_step`, `translation` and
`classification` (a run to its steps), `execute` and `slurm`. What is wrong with an input is a
``ConfigurationError``.
"""
