"""``capsnmt-report``: finished runs as one page, HTML and Markdown."""
