"""Rollouts: which version serves, and how its traffic moves to a new one."""
