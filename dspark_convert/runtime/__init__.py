"""Run a draft in a real llama.cpp: find the library, load the pair, decode, judge.

Every use of the library happens in a child process (``guard`` starts it, ``worker`` is it), because
llama.cpp ends its process on many kinds of bad file.
"""

#: tokens that are decoded for each prompt, and the seconds that all of it may take, if nothing else is asked for;
#: here, because the command line shows them and must not load more than this
DEFAULT_MAX_TOKENS = 64
DEFAULT_TIMEOUT = 900.0
