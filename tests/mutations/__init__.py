"""Does the suite notice when a promise of the product is broken? Run it before and after a change of many tests.

`table.txt` has mutations by topic: each takes one promise out of one file, and names the modules of tests of which one
must fail. Modules and no single tests, so that the table outlasts a test that is renamed or merged with others. The
topic `chaos` has the safeguards that are found by playing a scenario: three seeds of it, until the checker finds one.

    python -m tests.mutations                       all
    python -m tests.mutations lines 'keeps its key' some topics, and mutations with these words in their names
    python -m tests.mutations --record after.txt    and write what was found to a file, to compare it with another:
                                                    diff <(cut -f 1-3 before.txt) <(cut -f 1-3 after.txt)
    python -m tests.mutations --list                only the names

Each is tried in a copy of the tree, two side by side, until the first test fails. In the end the tests that have found
something run once more as they are: one that fails anyway has found nothing. A mutation is `found` by a test, MISSED,
or BROKEN, when it does not fit its file any more, or its modules cannot be run. All are tried, whatever becomes of one;
the exit code is 1 unless each is found. On two cores that nothing else uses it takes about half an hour.

`test_table.py` sees in each `make test` that all of them fit. A mutation that does not is changed together with the
product, and not dropped. A new one breaks what users rely on, and not only how that is done.
"""
