"""One mechanism a file, each an ``nn.Module``."""
