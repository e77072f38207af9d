"""Logical inference between propositions (Bowman et al. 2015): their files, and a generator."""
