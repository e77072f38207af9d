"""The names of the files of an analysis."""

PAGE = "analysis.html"
FIGURES, CAPTIONS = "figures", "captions.json"
