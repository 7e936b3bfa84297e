"""Run a draft in a real llama.cpp: find the library, load the pair, decode, judge.

Every use of the library happens in a child process (``guard`` starts it, ``worker`` is it), because
llama.cpp ends its process on many kinds of bad file.
"""
