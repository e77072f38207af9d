"""The mechanisms: one ``nn.Module`` per file."""
