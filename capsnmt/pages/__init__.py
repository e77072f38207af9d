"""Pages from Markdown templates, as Markdown and as HTML with their figures; no torch."""
