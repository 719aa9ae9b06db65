"""What each user sees of the desk and may do there; whatever a page does not offer is refused."""

from __future__ import annotations

from tests.browser.night import Night
from tests.browser.shop.factory import SECRET
from tests.browser.visitor import DESK, Visitor

LIST = f"{DESK}deadletter/"
ACT = f"{LIST}act/"

#: Who has an object is asked by a POST, as its id may be an argument.
OFFERED = (
    "#content form[method=post]:not(#desk-find-object) :is(button, input[type=submit]),"
    "#content a.button"
)

#: All that can be done to a task or to the desk.
ACTS = ("replay", "discard", "edit", "revoke", "sweep")


def forged(task_id: str, act: str) -> list[tuple[str, dict[str, str]]]:
    """What no page sends for who may not: addresses with their forms, by every door to an act."""
    yes = {"confirmed": "Yes"}
    if act == "edit":
        edited = {"id": task_id, "args": "[1]", "kwargs": "{}"}
        return [(f"{ACT}replay_dead_letter_edited/", {**edited, **yes})]
    if act == "revoke":
        return [(f"{ACT}revoke_tasks/", {"ids": task_id, **yes})]
    if act == "sweep":
        return [(f"{ACT}sweep/", yes)]
    many = f"{ACT}{act}_dead_letters/"
    return [(many, {"ids": task_id, **yes}), (many, {"all": "on"}), (many, {"all": "on", **yes})]


def send(visitor: Visitor, task_id: str, *acts: str, with_token: bool = True) -> set[int]:
    """Send all of that, and return the statuses of the answers."""
    return {
        visitor.post(address, fields, with_token=with_token)
        for act in acts
        for address, fields in forged(task_id, act)
    }


def open_letter(visitor: Visitor, task_id: str) -> None:
    visitor.open(LIST)
    visitor.follow(visitor.named(task_id))


def test_who_may_only_see_is_offered_nothing_and_can_do_nothing(
    visitor: Visitor, night: Night
) -> None:
    (task_id,) = night.charges(1)
    visitor.log_in("viewer")

    for address in visitor.walk():
        assert visitor.arrived()[0] == 200, address
        assert [one.accessible_name for one in visitor.all(OFFERED)] == [], address
        assert SECRET not in visitor.driver.page_source, address
    assert send(visitor, task_id, *ACTS) == {403}
    assert visitor.get(f"{LIST}tasks/task/{task_id}/?arguments=yes") == 403
    assert night.desk.letters.count() == 1
    visitor.refused()


def test_who_may_replay_may_not_discard(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.charges(1)
    visitor.log_in("replayer")

    open_letter(visitor, task_id)
    assert visitor.every_named("Replay")
    assert not visitor.every_named("Discard")
    # Other arguments are for who may see those that there are.
    assert send(visitor, task_id, "discard", "edit", "revoke", "sweep") == {403}
    assert night.desk.letters.count() == 1
    visitor.refused()


def test_who_may_operate_ends_what_lives_and_no_letter(visitor: Visitor, night: Night) -> None:
    (letter,) = night.charges(1)
    parked = night.remind_later(3600)
    visitor.log_in("operator")

    open_letter(visitor, letter)
    assert not visitor.every_named("Replay")
    assert not visitor.every_named("Discard")
    assert send(visitor, letter, "replay", "discard", "edit") == {403}
    visitor.follow(visitor.find("#desk-tab-tasks"))
    visitor.press(visitor.find(f"input[value='{parked}']"))
    visitor.follow(visitor.find("#desk-revoke"))
    assert "Revoke 1 task for good?" in visitor.main
    assert night.desk.tasks.get(parked).state == "parked"
    visitor.follow(visitor.find("#desk-yes"))
    visitor.wait_for_text("1 task revoked.")
    assert night.desk.tasks.get(parked).outcome == "REVOKED"
    visitor.follow(visitor.find("#desk-tab-overview"))
    visitor.follow(visitor.find("#desk-sweep"))
    assert "pass" in visitor.find(".messagelist").text
    assert night.desk.letters.count() == 1
    visitor.refused()


def test_who_may_not_even_see_is_refused_every_page(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.charges(1)
    visitor.log_in("root")
    pages = {*visitor.walk()} - {visitor.site.url(DESK)}
    assert any(task_id in one for one in pages)

    for user, status in (("stranger", 403), ("", 302)):
        visitor.log_in(user) if user else visitor.log_out()
        # Who is not logged in has a token, too: of the form to log in.
        visitor.open("/admin/login/")
        answers = {one: visitor.get(one) for one in pages}
        assert {*answers.values()} == {status}, (user, answers)
        assert send(visitor, task_id, *ACTS) == {status}
    assert night.desk.letters.count() == 1
    visitor.refused()


def test_no_form_is_taken_without_its_token(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.charges(1)
    visitor.log_in("root")
    targets = set()
    for _ in visitor.walk():
        # `form.action` would be the input of this name.
        script = "return arguments[0].map(form => form.getAttribute('action') || location.href)"
        targets |= {*visitor.driver.execute_script(script, visitor.all("form[method=post]"))}

    for target in targets:
        if "/logout/" not in target:
            assert visitor.post(target, {}, with_token=False) == 403, target
    assert send(visitor, task_id, *ACTS, with_token=False) == {403}

    assert night.desk.letters.count() == 1
    visitor.refused()
