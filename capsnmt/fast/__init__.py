"""What only makes the mechanisms and their models faster."""
