"""The project's commands in Python, and the table of the papers' rows that they share."""
