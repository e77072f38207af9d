"""Run folders: their layout, their records, and means over seeds; without torch and fairseq.

A run is one training with one seed and its evaluation. Its folder is ``OUTPUT/ROW/seed-S``, or
``OUTPUT/ROW/TASK/seed-S`` for a probing task.
"""
