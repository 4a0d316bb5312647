"""Rooms have no more lines than they need: a ceiling for each, which only falls, and the budget that it is falling to."""

from tests.house.test_architecture import MODULES, SOURCE

# Lines of Python by room: what it may have now, and its budget in DESIGN, section 3. The first number only falls.
BUDGETS = {
    "answers": (0, 600),
}
TOTAL = (0, 66_000)


def sizes() -> dict[str, int]:
    """Return the number of lines by room."""
    lines: dict[str, int] = {}
    for path in MODULES:
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        lines[room] = lines.get(room, 0) + path.read_text(encoding="utf-8").count("\n")
    return lines


def test_rooms_stay_within_their_budgets():
    now = sizes()
    assert set(now) == set(BUDGETS)
    larger = {room: (n, BUDGETS[room][0]) for room, n in now.items() if n > BUDGETS[room][0]}
    assert not larger, f"lines, and what the room may have: {larger}"
    assert sum(now.values()) <= TOTAL[0]


def test_ceilings_follow_what_was_deleted():
    """A ceiling is at most its budget, or what the room has: deleted lines do not come back."""
    now = sizes()
    high = {room: n for room, n in now.items() if BUDGETS[room][0] > max(1.1 * n + 100, BUDGETS[room][1])}
    assert not high, f"lower the ceilings to {high}"
