"""Interfaces of other libraries over Pumice's own, for programs that were written for those."""
