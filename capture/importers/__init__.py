"""Importers: runs that others recorded, from files, each format found by its content.

Ids are hashes of the content, so importing a file twice, or a copy of it, changes nothing.
"""
