"""What others rely on, as text: the keys and entries in Redis of each feature, and every public name.

A change of any of it fails a test with a diff. When the change is meant, write the files anew, read the difference, and
tell users in CHANGELOG.md:

    WRITE_GOLDEN=1 make test PYTEST=tests/golden
"""
