"""``capsnmt-report``: finished runs on one page, as HTML and as Markdown."""
