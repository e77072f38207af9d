"""The C++ kernels, which a CPU builds at first use."""
