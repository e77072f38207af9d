"""The Triton kernels of the operators, on a GPU."""
