"""A plan becomes files: threads fill temporary ones, which take their names once all is well."""
