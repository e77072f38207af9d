"""Run folders: their layout, their records, and means over seeds.

A run is one training with one seed and its evaluation. Its folder is
``OUTPUT/ROW/seed-S``, or ``OUTPUT/ROW/TASK/seed-S`` for a probing task.

- :class:`~capsnmt.runs.folder.RunFolder` names every file of the folder, and reads and writes the
  records in it. No other module knows the names.
- :mod:`~capsnmt.runs.records`: the records as dataclasses.
- :func:`~capsnmt.runs.find.find_runs`: the runs below some folders, finished and unfinished.
- :class:`~capsnmt.runs.finished.FinishedRun`: what the two kinds of finished runs share;
  :func:`~capsnmt.runs.translation.load_translation` and
  :func:`~capsnmt.runs.classification.load_classifier` read them, and check that they are complete.
- :func:`~capsnmt.runs.systems.group`: the runs of a row as one system, with means over seeds.
- :func:`~capsnmt.runs.sweeps.find_sweeps`: the runs of a sweep as curves over the values of a flag.
- :func:`~capsnmt.runs.summary.summarise`: ``summary.json``, the means over the seeds of a row.
- :func:`~capsnmt.runs.learning_curve.read_learning_curve`: the losses in ``train.log``.

The package imports neither torch nor fairseq; torch is loaded when a checkpoint is read.
"""
