"""What the format of RSMQ asks for, by number, and where each is held against npm's rsmq, PyRSMQ or their dumps."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
PEERS, CONSUMERS, STORE = "peers/test_rsmq_peers.py", "peers/test_rsmq_consumers.py", "stores/test_rsmq_store.py"

CHECKS = {
    1: ("default and own namespaces", PEERS, "test_the_default_namespace_is_the_same"),
    2: ("a new queue has five fields", PEERS, "test_a_queue_created_by_us_holds_what_npm_writes"),
    3: ("a second create changes nothing", PEERS, "test_a_queue_can_be_created_once_by_either"),
    4: ("the set of names", PEERS, "test_both_find_the_queues_of_a_namespace"),
    5: ("defaults 30, 0, 65536", PEERS, "test_a_queue_created_by_us_holds_what_npm_writes"),
    6: ("bounds of vt and delay", PEERS, "test_seconds_have_the_bounds_of_npm"),
    7: ("bounds of maxsize", PEERS, "test_maxsize_has_the_bounds_of_npm"),
    8: ("names of queues, and PyRSMQ's", PEERS, "test_a_queue_that_only_pyrsmq_would_name_so_can_be_used"),
    9: ("no queue is called QUEUES", PEERS, "test_no_queue_is_named_as_the_set_of_queues"),
    10: ("ids: 32 characters, the first ten a time", PEERS, "test_an_id_says_when_it_was_sent"),
    11: ("sent is near the server's clock", PEERS, "test_an_id_says_when_it_was_sent"),
    12: ("ids are unique", PEERS, "test_ids_are_unique_and_rise"),
    13: ("score = time + delay", PEERS, "test_a_score_is_the_time_and_the_delay"),
    14: ("no rc and fr before the first receive", PEERS, "test_a_message_before_its_first_receive_is_one_field"),
    15: ("totalsent", PEERS, "test_a_message_before_its_first_receive_is_one_field"),
    16: ("an empty body", PEERS, "test_an_empty_body_survives"),
    17: ("emoji, NUL, line breaks, JSON text", PEERS, "test_bodies_survive_both_ways"),
    18: ("bytes that are not UTF-8", STORE, "test_bytes_that_are_no_text_can_be_read_and_are_buried_by_a_consumer"),
    19: ("maxsize in UTF-16 units; -1", PEERS, "test_a_message_over_the_maxsize_is_refused_as_npm_refuses_it"),
    20: ("only text is sent", PEERS, "test_what_is_no_text_is_refused_by_both"),
    21: ("the order of receiving", PEERS, "test_messages_come_in_the_order_of_their_scores"),
    22: ("a receive hides; rc and fr of the next", PEERS, "test_receiving_hides_counts_and_remembers_the_first_time"),
    23: ("vt=0 hides nothing", PEERS, "test_with_a_vt_of_zero_a_message_stays_visible"),
    24: ("the vt of a call", PEERS, "test_the_vt_of_a_call_beats_that_of_the_queue"),
    25: ("the delay of a message", PEERS, "test_a_delayed_message_is_seen_by_neither_until_it_is_due"),
    26: ("an empty queue", PEERS, "test_an_empty_queue_changes_nothing"),
    27: ("totalrecv counts receives and pops", PEERS, "test_pop_leaves_nothing"),
    28: ("fr is text of ms, rc a number", PEERS, "test_receiving_hides_counts_and_remembers_the_first_time"),
    29: ("pop leaves nothing", PEERS, "test_pop_leaves_nothing"),
    30: ("pop after a receive", PEERS, "test_pop_after_a_receive_tells_both"),
    31: ("change of visibility", PEERS, "test_visibility_can_be_changed_by_either"),
    32: ("delete", PEERS, "test_a_message_is_deleted_once_by_either"),
    33: ("delete of a queue", PEERS, "test_a_deleted_queue_is_gone_for_both"),
    34: ("set of attributes", PEERS, "test_setting_attributes_of_a_missing_queue_creates_nothing"),
    35: ("all attributes", PEERS, "test_attributes_agree"),
    36: ("realtime", PEERS, "test_realtime_tells_the_number_of_messages_after_a_send"),
    37: (
        "three consumers on a queue",
        CONSUMERS,
        "test_npm_pyrsmq_and_ours_handle_a_thousand_messages_while_ours_are_killed",
    ),
    38: ("an id without a body", PEERS, "test_half_a_message_is_passed_over"),
    39: ("ids of another kind", PEERS, "test_a_message_with_an_id_of_another_kind_can_be_used"),
    40: ("a vt with a fraction", PEERS, "test_a_vt_with_a_fraction_is_read_as_npm_reads_it"),
    41: ("half a queue is none", PEERS, "test_what_pyrsmq_leaves_of_a_missing_queue_is_no_queue"),
    42: ("our data lies elsewhere", STORE, "test_our_data_stays_out_of_rsmqs_keys"),
    43: ("a burial is one step", PEERS, "test_npm_sees_a_burial_and_a_redrive_whole"),
    44: ("SCRIPT FLUSH", STORE, "test_a_server_that_lost_its_scripts_is_told_them_again"),
    45: ("ACL and Cluster", "stores/test_restricted.py", "test_all_of_it_runs_on_a_cluster"),
    46: ("created and modified in seconds", PEERS, "test_a_queue_created_by_us_holds_what_npm_writes"),
    47: ("a delay of npm is due on time", PEERS, "test_what_npm_delayed_is_ours_when_it_is_due"),
}


def test_no_number_is_missing():
    assert list(CHECKS) == list(range(1, 48))


def test_each_check_is_a_test():
    paths = {path for _, path, _ in CHECKS.values()}
    trees = {path: ast.parse((TESTS / path).read_text(encoding="utf-8")) for path in paths}
    tests = {path: {getattr(node, "name", "") for node in tree.body} for path, tree in trees.items()}
    assert [number for number, (_, path, name) in CHECKS.items() if name not in tests[path]] == []
