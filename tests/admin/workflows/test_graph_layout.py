"""The places of steps in a graph."""

import random

from mq_django.admin.run_graph import lay_out


def columns(before):
    layout = lay_out(before)
    return [
        [number for number in sorted(before, key=lambda n: layout.cells[n].row) if layout.cells[number].column == at]
        for at in range(layout.columns)
    ]


def test_columns_are_the_longest_paths():
    assert columns({1: [], 2: [1], 3: [2], 4: [1, 3]}) == [[1], [2], [3], [4]]
    assert columns({1: [], 2: [1], 3: [1], 4: [2, 3]}) == [[1], [2, 3], [4]]


def test_steps_stand_near_those_that_they_wait_for():
    assert columns({1: [], 2: [], 3: [], 4: [3], 5: [1], 6: [2]}) == [[1, 2, 3], [5, 6, 4]]


def test_each_step_has_a_place_of_its_own():
    rand = random.Random(1)
    before = {n: sorted(rand.sample(range(1, n), min(n - 1, rand.randrange(4)))) for n in range(1, 201)}
    layout = lay_out(before)
    assert len({*layout.cells.values()}) == 200
    assert all(layout.cells[n].column > layout.cells[other].column for n in before for other in before[n])
    assert all(0 <= place.row <= layout.rows - 1 for place in layout.cells.values())


def test_what_another_program_has_written_is_no_error():
    assert columns({1: [2], 2: [1], 3: [], 4: [4, 99]}) == [[3], [1, 2, 4]]
    assert lay_out({}).columns == 0
