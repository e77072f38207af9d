"""Analyses of trained translation models: numbers, figures and a page (``capsnmt-analyse``).

Each analysis is one class, listed in :data:`capsnmt.analysis.analyse.ANALYSES`.
The words of the page are in ``analysis.md.j2``.
"""
