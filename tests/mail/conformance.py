"""What every engine promises: imported by `test_conformance`, and by the tests of other engines.

A module that imports these tests provides the fixtures `subject`, `open_with` and `lasting`.
"""

from __future__ import annotations

from typing import Any

import pytest

from busd.bus.mail import (
    EXPIRED,
    MAX_PAYLOAD_BYTES,
    Box,
    BoxFull,
    DeadFilter,
    Held,
    Kept,
    KeyReused,
    KnownAddress,
    Mail,
    MailLimits,
    NotFound,
    NotHeld,
    TooLarge,
    Totals,
)
from busd.bus.mail_store import (
    Bury,
    Claim,
    DropDead,
    Expire,
    Finish,
    Forfeit,
    ForgetAddress,
    ForgetKeys,
    Keep,
    Known,
    ListDead,
    NoteAttempt,
    Peek,
    Postpone,
    Purge,
    Read,
    Release,
    Remember,
    Revive,
    Settle,
    SettleOne,
    Survey,
)
from tests.mail.conftest import OpenWith
from tests.mail.stores import Subject, do, mail, refused


def keep(subject: Subject, *names: str, **changes: Any) -> list[int]:
    """Keep mail; return the ids."""
    return [do(subject, Keep(mail(name, **changes))).id for name in names]


def claim(subject: Subject, address: str = "agent:a") -> Box:
    return do(subject, Claim(address, "h1"))


def settle_all(subject: Subject, address: str = "agent:a") -> None:
    """Delete all mail of an address, as after its delivery."""
    do(subject, Settle(claim(subject, address), 1_000_000))


def names_in(found: list[Mail]) -> list[str]:
    return [str(each.message_id) for each in found]


# Keeping and reading


def test_mail_is_read_as_it_was_kept(subject: Subject) -> None:
    given = mail("m1", idempotency_key="k", account="uid 7", payload=b'{"a":"\xc3\xa9"}')
    kept = do(subject, Keep(given))
    assert kept == Kept(kept.id, True, "m1", None)
    [found] = do(subject, Read(claim(subject)))
    given.id = kept.id
    assert found == given


@pytest.mark.parametrize("hops", [None, 0, 7])
def test_the_hops_of_mail_survive_a_restart_a_failure_and_a_revival(
    lasting: Subject, hops: int | None
) -> None:
    number = do(lasting, Keep(mail("a", hops=hops))).id
    lasting.restart()
    box = claim(lasting)
    do(lasting, Postpone(box, number, 1500.0, "busy"))
    do(lasting, Bury(box, number, "given up", 1600.0))
    do(lasting, Revive(number, 1700.0, 2500.0))
    [found] = do(lasting, Read(box))
    assert found.hops == hops


def test_a_number_stays_a_number_and_its_text_a_text(lasting: Subject) -> None:
    for given in (7, "7", -(2**63), 2**63 - 1):
        do(lasting, Keep(mail("", message_id=given, idempotency_key=f"{given!r}")))
    lasting.restart()
    found = do(lasting, Read(claim(lasting)))
    assert [each.message_id for each in found] == [7, "7", -(2**63), 2**63 - 1]
    again = do(lasting, Keep(mail("", message_id=7, idempotency_key="7")))
    assert (again.is_new, again.message_id) == (False, 7)


def test_whoever_only_looks_needs_no_claim(subject: Subject) -> None:
    ids = keep(subject, *"abc")
    claim(subject)
    assert names_in(do(subject, Peek("agent:a", after=ids[0], limit=1))) == ["b"]
    assert do(subject, Peek("agent:b")) == []


def test_ids_increase_and_mail_is_read_in_the_order_kept(subject: Subject) -> None:
    ids = keep(subject, *"abc")
    keep(subject, "other", address="agent:b")
    assert ids == sorted(set(ids))
    assert names_in(do(subject, Read(claim(subject)))) == ["a", "b", "c"]


def test_reading_goes_on_after_an_id_and_stops_at_a_limit(subject: Subject) -> None:
    ids = keep(subject, *"abcd")
    box = claim(subject)
    assert names_in(do(subject, Read(box, after=ids[0], limit=2))) == ["b", "c"]


def test_reading_stops_at_a_number_of_bytes_but_not_before_the_first(subject: Subject) -> None:
    keep(subject, *"abc", payload=b"x" * 100)
    box = claim(subject)
    assert names_in(do(subject, Read(box, max_bytes=250))) == ["a", "b"]
    assert names_in(do(subject, Read(box, max_bytes=1))) == ["a"]


def test_outcomes_come_in_the_order_of_submission_and_each_sees_those_before(
    subject: Subject,
) -> None:
    box = claim(subject)
    found = subject.submit_all(
        [Keep(mail("a")), Read(box), Keep(mail("b")), Keep(mail("c")), Read(box)]
    )
    assert [each.message_id for each in (found[0], found[2], found[3])] == ["a", "b", "c"]
    assert names_in(found[1]) == ["a"]
    assert names_in(found[4]) == ["a", "b", "c"]
    assert subject.store.waiting == 0


# Limits


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (MailLimits(box_count=2), "box_count"),
        (MailLimits(box_bytes=250), "box_bytes"),
        (MailLimits(total_count=2), "total_count"),
        (MailLimits(total_bytes=250), "total_bytes"),
    ],
)
def test_a_full_mailbox_refuses_and_names_the_limit(
    open_with: OpenWith, limits: MailLimits, what: str
) -> None:
    subject = open_with(limits)
    ids = keep(subject, "a", "b", payload=b"x" * 100)
    third = Keep(mail("c", payload=b"x" * 100))
    assert refused(subject, third) == BoxFull(what, getattr(limits, what))
    assert subject.store.totals == Totals(2, 200)
    other = subject.submit_all([Keep(mail(address="agent:b", payload=b"x" * 100))])[0]
    assert isinstance(other, BoxFull) == what.startswith("total")
    do(subject, Settle(claim(subject), ids[0]))
    do(subject, Purge("agent:b"))
    do(subject, third)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (MailLimits(identity_count=2), "identity_count"),
        (MailLimits(identity_bytes=5), "identity_bytes"),
    ],
)
def test_one_identity_cannot_fill_the_store(
    open_with: OpenWith, limits: MailLimits, what: str
) -> None:
    subject = open_with(limits)
    ids = keep(subject, "a", "b", account="uid 7", payload=b"{}")
    full = refused(subject, Keep(mail("c", account="uid 7", address="agent:b", payload=b"{}")))
    assert isinstance(full, BoxFull)
    assert full.what == what
    keep(subject, "d", account="uid 8", payload=b"{}")
    do(subject, SettleOne(claim(subject), ids[0], b"{}"))
    keep(subject, "e", account="uid 7", payload=b"{}")


def test_one_refusal_does_not_affect_what_is_submitted_with_it(subject: Subject) -> None:
    large = Keep(mail("large", payload=b"x" * (MAX_PAYLOAD_BYTES + 1)))
    found = subject.submit_all([Keep(mail("a")), large, Keep(mail("b"))])
    assert found[1] == TooLarge()
    assert names_in(do(subject, Read(claim(subject)))) == ["a", "b"]


# Keys


def test_a_second_send_with_the_same_key_returns_the_first(subject: Subject) -> None:
    first = do(subject, Keep(mail("m1", idempotency_key="k")))
    again = do(subject, Keep(mail("m2", idempotency_key="k", kept_at=1001.0)))
    assert again == Kept(first.id, False, "m1", None)
    do(subject, Keep(mail("m3", idempotency_key="k", sender="tg:2")))
    assert names_in(do(subject, Read(claim(subject)))) == ["m1", "m3"]


def test_two_sends_with_one_key_at_once_are_one(subject: Subject) -> None:
    both = [Keep(mail(name, idempotency_key="k")) for name in ("m1", "m2")]
    assert [each.is_new for each in subject.submit_all([*both])] == [True, False]


@pytest.mark.parametrize("change", [{"payload": b"{}"}, {"address": "agent:b"}])
def test_a_key_is_not_for_another_message(subject: Subject, change: dict[str, Any]) -> None:
    do(subject, Keep(mail("m1", idempotency_key="k")))
    other = Keep(mail("m2", idempotency_key="k", **change))
    assert refused(subject, other) == KeyReused("m1")


def test_a_key_is_free_again_after_the_deduplication_window(subject: Subject) -> None:
    do(subject, Keep(mail("m1", idempotency_key="k", kept_at=1000.0)))
    settle_all(subject)
    edge = do(subject, Keep(mail("m2", idempotency_key="k", kept_at=1000.0 + 86_400)))
    after = do(subject, Keep(mail("m3", idempotency_key="k", kept_at=1001.0 + 86_400)))
    assert [edge.is_new, after.is_new] == [False, True]


def test_a_key_is_not_free_while_its_mail_waits(subject: Subject) -> None:
    do(subject, Keep(mail("m1", idempotency_key="k", kept_at=1000.0)))
    assert do(subject, ForgetKeys(before=1000.0 + 2 * 86_400)) == 0
    later = {"idempotency_key": "k", "kept_at": 1000.0 + 2 * 86_400}
    assert do(subject, Keep(mail("m2", **later))).message_id == "m1"
    other = Keep(mail("m3", address="agent:other", **later))
    assert refused(subject, other) == KeyReused("m1")


def test_forgotten_keys_are_free_again(subject: Subject) -> None:
    do(subject, Keep(mail("m1", idempotency_key="k1", kept_at=1000.0)))
    do(subject, Keep(mail("m2", idempotency_key="k2", kept_at=1001.0)))
    settle_all(subject)
    assert do(subject, ForgetKeys(before=1001.0)) == 1
    assert do(subject, Keep(mail("m3", idempotency_key="k1"))).is_new
    assert not do(subject, Keep(mail("m4", idempotency_key="k2"))).is_new


def test_the_oldest_keys_make_room(open_with: OpenWith) -> None:
    subject = open_with(MailLimits(key_count=2))
    for name in "abc":
        keep(subject, name, idempotency_key=name)
    assert do(subject, ForgetKeys(before=0.0)) == 1
    assert [do(subject, Keep(mail(name, idempotency_key=name))).is_new for name in "cba"] == [
        False,
        False,
        True,
    ]


def test_a_flood_of_keys_does_not_cost_others_theirs(open_with: OpenWith) -> None:
    subject = open_with(MailLimits(key_count=3))
    for name, account in ("a1", "u1"), ("b2", "u2"), ("c2", "u2"), ("d2", "u2"), ("e2", "u2"):
        keep(subject, name, idempotency_key=name, account=account)
    assert do(subject, ForgetKeys(before=0.0)) == 2
    again = [do(subject, Keep(mail(name, idempotency_key=name))) for name in ("a1", "d2", "e2")]
    assert not any(each.is_new for each in again)
    assert do(subject, Keep(mail("c2", idempotency_key="c2"))).is_new


def test_the_outcome_of_the_first_send_is_that_of_the_second(lasting: Subject) -> None:
    finished = do(lasting, Keep(mail("m1", idempotency_key="k1")))
    settled = do(lasting, Keep(mail("m2", idempotency_key="k2")))
    do(lasting, Finish(finished.id, b'{"accepted":true}'))
    do(lasting, SettleOne(claim(lasting), settled.id, b"{}"))
    lasting.restart()
    again = [do(lasting, Keep(mail("again", idempotency_key=key))) for key in ("k1", "k2")]
    assert again[0] == Kept(finished.id, False, "m1", b'{"accepted":true}')
    assert again[1] == Kept(settled.id, False, "m2", b"{}")


def test_a_full_mailbox_does_not_use_up_the_key(open_with: OpenWith) -> None:
    subject = open_with(MailLimits(box_count=1))
    [first] = keep(subject, "a")
    refused(subject, Keep(mail("b", idempotency_key="k")))
    do(subject, Settle(claim(subject), first))
    assert do(subject, Keep(mail("b", idempotency_key="k"))).is_new


def test_a_second_send_gets_its_outcome_even_if_the_mailbox_is_full(open_with: OpenWith) -> None:
    subject = open_with(MailLimits(box_count=1))
    keep(subject, "a", idempotency_key="k")
    assert not do(subject, Keep(mail("b", idempotency_key="k"))).is_new


# Claims


def test_a_claim_is_exclusive_and_tells_what_there_is(subject: Subject) -> None:
    ids = keep(subject, "a", "b", payload=b"{}")
    first = claim(subject)
    do(subject, NoteAttempt(first, ids[0]))
    assert refused(subject, Claim("agent:a", "h2")) == Held("h1")
    do(subject, Release(first))
    second = do(subject, Claim("agent:a", "h2"))
    assert second == Box("agent:a", "h2", second.fence, 2, 4, 1)
    assert second.fence > first.fence


def test_the_holder_may_claim_again_which_ends_its_first_claim(subject: Subject) -> None:
    first, second = claim(subject), claim(subject)
    assert second.fence > first.fence
    assert refused(subject, Read(first)) == NotHeld("agent:a")
    do(subject, Release(first))  # without effect
    assert do(subject, Read(second)) == []


def test_all_claims_of_a_holder_end_at_once(subject: Subject) -> None:
    claim(subject, "agent:a")
    claim(subject, "agent:b")
    other = do(subject, Claim("agent:c", "h2"))
    assert do(subject, Forfeit("h1")) == 2
    do(subject, Claim("agent:a", "h2"))
    do(subject, Read(other))


def test_nothing_can_be_done_with_a_claim_that_has_ended(subject: Subject) -> None:
    [first] = keep(subject, "a")
    box = claim(subject)
    do(subject, Release(box))
    do(subject, Claim("agent:a", "h2"))
    for operation in (
        Read(box),
        NoteAttempt(box, first),
        Settle(box, first),
        SettleOne(box, first, b"{}"),
        Postpone(box, first, 1.0, "later"),
        Bury(box, first, "bad", 1.0),
    ):
        assert refused(subject, operation) == NotHeld("agent:a")
    assert subject.store.totals.count == 1


def test_claims_end_with_the_run_and_fencing_numbers_do_not_return(lasting: Subject) -> None:
    before = claim(lasting)
    lasting.restart()
    assert refused(lasting, Read(before)) == NotHeld("agent:a")
    after = do(lasting, Claim("agent:a", "h2"))
    assert after.fence > before.fence
    assert refused(lasting, Read(before)) == NotHeld("agent:a")


# Delivering


def test_settled_mail_is_gone_up_to_an_id(subject: Subject) -> None:
    ids = keep(subject, *"abc")
    keep(subject, "other", address="agent:b")
    box = claim(subject)
    assert do(subject, Settle(box, ids[1])) == 2
    assert do(subject, Settle(box, ids[1])) == 0
    assert names_in(do(subject, Read(box))) == ["c"]
    assert subject.store.totals.count == 2


def test_one_mail_is_settled_out_of_order(subject: Subject) -> None:
    ids = keep(subject, *"abc")
    box = claim(subject)
    do(subject, SettleOne(box, ids[1], b"{}"))
    do(subject, SettleOne(box, ids[1], b"{}"))  # without effect
    assert names_in(do(subject, Read(box))) == ["a", "c"]


def test_a_box_reaches_only_the_mail_of_its_address(subject: Subject) -> None:
    [other] = keep(subject, "other", address="agent:b")
    box = claim(subject)
    assert do(subject, Settle(box, other)) == 0
    do(subject, SettleOne(box, other, b"{}"))
    assert refused(subject, NoteAttempt(box, other)) == NotFound(other)
    assert refused(subject, Postpone(box, other, 1.0, "")) == NotFound(other)
    assert refused(subject, Bury(box, other, "", 1.0)) == NotFound(other)
    assert subject.store.totals.count == 1


def test_attempts_and_postponements_are_on_record(lasting: Subject) -> None:
    [first] = keep(lasting, "a")
    box = claim(lasting)
    assert [do(lasting, NoteAttempt(box, first)) for _ in range(2)] == [1, 2]
    do(lasting, Postpone(box, first, 1500.0, "busy"))
    lasting.restart()
    box = claim(lasting)
    assert box.attempts == 2
    [found] = do(lasting, Read(box))
    assert (found.attempts, found.not_before, found.reason) == (2, 1500.0, "busy")


def test_everything_survives_a_restart(lasting: Subject) -> None:
    ids = keep(lasting, *"abc")
    box = claim(lasting)
    do(lasting, Settle(box, ids[0]))
    do(lasting, Bury(box, ids[1], "bad", 1100.0))
    before = lasting.store.totals
    lasting.restart()
    assert lasting.store.totals == before == Totals(1, 13, 1, 13)
    assert names_in(do(lasting, Read(claim(lasting)))) == ["c"]
    assert keep(lasting, "d")[0] > ids[2]


def test_ids_do_not_return_though_nothing_is_left(lasting: Subject) -> None:
    [first] = keep(lasting, "a")
    do(lasting, Purge("agent:a"))
    lasting.restart()
    assert keep(lasting, "b")[0] > first


# Dead letters


def buried(subject: Subject, *names: str, **changes: Any) -> list[int]:
    """Bury new mail, one per second from 1100 on; return the ids."""
    ids = keep(subject, *names, **changes)
    box = claim(subject, changes.get("address", "agent:a"))
    for second, number in enumerate(ids):
        do(subject, Bury(box, number, "bad", 1100.0 + second))
    return ids


def test_a_dead_letter_has_a_reason_and_its_mailbox_goes_on(subject: Subject) -> None:
    keep(subject, "before")
    ids = buried(subject, "a")
    [letter] = do(subject, ListDead())
    assert (letter.mail.id, letter.mail.reason, letter.buried_at) == (ids[0], "bad", 1100.0)
    assert letter.mail.payload == mail().payload
    assert names_in(do(subject, Read(claim(subject)))) == ["before"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (DeadFilter(), "abcd"),
        (DeadFilter(prefix="agent:a"), "abd"),
        (DeadFilter(prefix="agent:_"), ""),
        (DeadFilter(sender="tg:2"), "d"),
        (DeadFilter(buried_before=1101.0), "acd"),
    ],
)
def test_dead_letters_are_chosen_by_a_filter(
    subject: Subject, chosen: DeadFilter, expected: str
) -> None:
    buried(subject, *"ab")
    buried(subject, "c", address="agent:b")
    buried(subject, "d", sender="tg:2")
    found = do(subject, ListDead(chosen))
    assert names_in([letter.mail for letter in found]) == list(expected)
    assert do(subject, DropDead(filter=chosen)) == len(expected)
    assert do(subject, ListDead(chosen)) == []
    assert subject.store.totals.dead == 4 - len(expected)


def test_dead_letters_are_listed_page_by_page(subject: Subject) -> None:
    ids = buried(subject, *"abcd")
    page = do(subject, ListDead(after=ids[0], limit=2))
    assert [letter.mail.id for letter in page] == ids[1:3]
    assert do(subject, DropDead([ids[0], ids[0], 10**9])) == 1


def test_a_dead_letter_is_revived_at_the_end_of_its_mailbox(subject: Subject) -> None:
    [dead] = buried(subject, "a", idempotency_key="k", not_before=7.0)
    do(subject, Finish(dead, b"failed"))
    keep(subject, "b")
    kept = do(subject, Revive(dead, 1500.0, 2500.0))
    assert refused(subject, Revive(dead, 1500.0, 2500.0)) == NotFound(dead)
    first, second = do(subject, Read(claim(subject)))
    assert names_in([first, second]) == ["b", "a"]
    assert second == mail(
        "a", id=kept.id, idempotency_key="k", kept_at=1500.0, expires_at=2500.0, attempts=0
    )
    assert do(subject, Keep(mail("c", idempotency_key="k"))) == Kept(kept.id, False, "a", None)
    assert subject.store.totals == Totals(2, 26)


def test_a_revived_dead_letter_that_was_tried_keeps_one_attempt(subject: Subject) -> None:
    [number] = keep(subject, "a")
    box = claim(subject)
    for _ in range(3):
        do(subject, NoteAttempt(box, number))
    do(subject, Bury(box, number, "bad", 1.0))
    do(subject, Revive(number, 1500.0, 2500.0))
    [found] = do(subject, Read(box))
    assert found.attempts == 1


def test_a_dead_letter_stays_if_its_mailbox_is_full(open_with: OpenWith) -> None:
    subject = open_with(MailLimits(box_count=1))
    [dead] = buried(subject, "a")
    keep(subject, "b")
    assert refused(subject, Revive(dead, 1.0, 2.0)) == BoxFull("box_count", 1)
    assert subject.store.totals.dead == 1


@pytest.mark.parametrize("limits", [MailLimits(dead_count=2), MailLimits(dead_bytes=26)])
def test_the_oldest_dead_letters_make_room(open_with: OpenWith, limits: MailLimits) -> None:
    subject = open_with(limits)
    buried(subject, *"abc")
    assert names_in([each.mail for each in do(subject, ListDead())]) == ["b", "c"]
    assert subject.store.totals == Totals(0, 0, 2, 26)


@pytest.mark.parametrize("limits", [MailLimits(dead_count=3), MailLimits(dead_bytes=39)])
def test_a_flood_of_dead_letters_does_not_cost_others_theirs(
    open_with: OpenWith, limits: MailLimits
) -> None:
    subject = open_with(limits)
    keep(subject, "a", account="uid:1", expires_at=1.0)
    do(subject, Expire(1.0))
    for name in "bcdef":
        keep(subject, name, account="uid:2", expires_at=1.0)
        do(subject, Expire(1.0))
    assert names_in([each.mail for each in do(subject, ListDead())]) == ["a", "e", "f"]
    assert subject.store.totals == Totals(0, 0, 3, 39)


# Maintenance


def test_expired_mail_becomes_dead_letters_and_is_returned_without_payload(
    subject: Subject,
) -> None:
    keep(subject, "late", expires_at=1999.0)
    keep(subject, "early", expires_at=1500.0, address="agent:b")
    keep(subject, "never", expires_at=1999.5)
    assert do(subject, Expire(1499.0)) == []
    expired = do(subject, Expire(1999.0))
    assert names_in(expired) == ["early", "late"]
    assert {(each.reason, each.payload) for each in expired} == {(EXPIRED, b"")}
    letters = do(subject, ListDead())
    assert {(each.mail.payload, each.buried_at) for each in letters} == {(mail().payload, 1999.0)}
    assert names_in(do(subject, Read(claim(subject)))) == ["never"]


def test_expiry_is_done_in_portions(subject: Subject) -> None:
    keep(subject, *"abc")
    assert [len(do(subject, Expire(3000.0, limit=2))) for _ in range(3)] == [2, 1, 0]


def test_a_clock_that_jumps_expires_what_the_jump_implies_and_no_more(subject: Subject) -> None:
    day = 86_400.0
    keep(subject, "half a day left", expires_at=1000.0 + day / 2)
    keep(subject, "two days left", expires_at=1000.0 + 2 * day)
    assert names_in(do(subject, Expire(1000.0 + day))) == ["half a day left"]
    assert do(subject, Expire(1000.0)) == []  # and back
    assert do(subject, Expire(1000.0 + day)) == []


def test_a_mailbox_is_purged_though_it_is_claimed(subject: Subject) -> None:
    keep(subject, *"ab")
    keep(subject, "other", address="agent:b")
    box = claim(subject)
    purged = do(subject, Purge("agent:a"))
    assert [(mail.message_id, mail.payload) for mail in purged] == [("a", b""), ("b", b"")]
    assert do(subject, Read(box)) == []
    assert subject.store.totals.count == 1


def test_a_mailbox_is_purged_in_portions(subject: Subject) -> None:
    keep(subject, *"abc")
    assert [len(do(subject, Purge("agent:a", limit=2))) for _ in range(3)] == [2, 1, 0]
    assert subject.store.totals.bytes == 0


def test_a_survey_tells_what_there_is_per_address(subject: Subject) -> None:
    keep(subject, "b", address="agent:b", payload=b"{}", kept_at=900.0)
    buried(subject, "a")
    keep(subject, "c", address="tg:1")
    rows = do(subject, Survey("agent:"))
    assert [(row.address, row.count, row.bytes, row.oldest) for row in rows] == [
        ("agent:a", 0, 0, None),
        ("agent:b", 1, 2, 900.0),
    ]
    assert [(row.dead, row.dead_bytes, row.holder) for row in rows] == [(1, 13, "h1"), (0, 0, "")]
    [page] = do(subject, Survey(after="agent:a", limit=1))
    assert page.address == "agent:b"
    do(subject, Purge("tg:1"))
    assert do(subject, Survey("tg:")) == []


def test_known_addresses_survive_a_restart(lasting: Subject) -> None:
    for address, now in (("b", 1.0), ("a:*", 2.0), ("c", 3.0), ("b", 4.0)):
        do(lasting, Remember(address, now))
    lasting.restart()
    assert do(lasting, Known(since=3.0)) == [KnownAddress("b", 4.0), KnownAddress("c", 3.0)]
    assert len(do(lasting, Known())) == 3


def test_a_known_address_can_be_forgotten(subject: Subject) -> None:
    do(subject, Remember("agent:a", 1.0))
    do(subject, ForgetAddress("agent:a"))
    do(subject, ForgetAddress("agent:b"))
    assert do(subject, Known()) == []


def test_the_earliest_known_addresses_make_room(open_with: OpenWith) -> None:
    subject = open_with(MailLimits(known_count=2))
    for address, now in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        do(subject, Remember(address, now))
    assert [each.address for each in do(subject, Known())] == ["a", "c"]
