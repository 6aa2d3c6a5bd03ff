"""The demo: a client of the platform that plays customers, judges and people.

It knows the command line (`afterbay …`) and HTTP, nothing else of the system it plays against.
"""
