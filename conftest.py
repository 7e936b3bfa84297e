"""Being here puts the repository on sys.path: the tests import ``fixtures`` and ``tests.oracle``."""
