"""A kind of task that bertkit does not have, in one folder: how good a text sounds, from 0 to 1."""
