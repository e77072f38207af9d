"""Logical inference between propositions (Bowman et al. 2015): data files and a generator."""
