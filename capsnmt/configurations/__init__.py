"""Configurations: `schema` says what a row may set, and `files` reads it from YAML files."""
